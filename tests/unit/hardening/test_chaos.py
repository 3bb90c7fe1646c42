"""Which faults a chaos campaign draws, how its stream pauses, and how it compares models."""

import asyncio
import itertools
import random
import re
from collections import Counter

import numpy as np
import pytest

from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.tables import OptimizerSpec, TableSpec
from hardening.chaos.bad_days import OPTIONS as BAD_DAY
from hardening.chaos.bad_days import draw_bad_days
from hardening.chaos.faults import draw_faults
from hardening.chaos.pausing import PausingStream
from hardening.chaos.system import OPTIONS
from hardening.chaos.verdict import difference
from hardening.chaos.ways import DENSE_SUMS, KINDS, WAYS, draw_ways
from tests.support.models import save_model
from tests.support.simple_clients import samples


def test_thirty_faults_hold_every_kind_at_least_twice():
    faults = draw_faults(random.Random(0), 30)
    kinds = Counter(re.sub(r"worker \d", "worker", fault.name) for fault in faults)
    assert len(kinds) == 12
    assert min(kinds.values()) >= 2
    assert all(0 < fault.iteration < OPTIONS.iterations for fault in faults)
    assert all(fault.store == "redis" for fault in faults if fault.name == "kill redis")


def test_a_seed_gives_the_same_faults():
    first, second = (draw_faults(random.Random(7), 12) for _ in range(2))
    assert [(each.name, each.store, each.iteration) for each in first] == [
        (each.name, each.store, each.iteration) for each in second
    ]


def test_a_seed_gives_the_same_bad_days():
    first, second = (draw_bad_days(random.Random(7), 12) for _ in range(2))
    assert [list(map(str, each.misfortunes)) for each in first] == [list(map(str, each.misfortunes)) for each in second]


def test_sixty_bad_days_hold_everything_on_every_store_with_every_optimizer():
    days = draw_bad_days(random.Random(0), 60)
    assert len({(day.store, day.training.options.optimizer) for day in days}) == 6
    assert {len(day.misfortunes) for day in days} == {2, 3}
    names = " ".join(each.name for day in days for each in day.misfortunes)
    for kind in ("kill worker", "kill redis", "hang worker", "hang ps_server", "cut", "lose packets", "second start"):
        assert kind in names
    assert all(0 <= each.iteration <= BAD_DAY.iterations for day in days for each in day.misfortunes)


def test_a_hundred_days_bring_every_way_every_kind_of_misfortune_and_every_shape(tmp_path):
    days = draw_ways(random.Random(0), 100, tmp_path)
    ways = [day.training.options.sync + " direct" * day.training.options.direct for day in days]
    met = {(way, each.name) for way, day in zip(ways, days, strict=True) for each in day.misfortunes}
    assert len(set(ways)) == len(WAYS)
    assert len(met) == len(WAYS) * len(KINDS)
    shapes = {
        (
            way,
            day.training.shards,
            day.training.options.epochs,
            day.training.options.evaluate_every,
            day.training.earlier is not None,
        )
        for way, day in zip(ways, days, strict=True)
    }
    assert len(shapes) == len(WAYS) * 6
    sums = {(way, day.training.options.dense_sum) for way, day in zip(ways, days, strict=True)}
    assert sums == set(itertools.product(set(ways), DENSE_SUMS))
    assert all(day.misfortunes for day in days)
    assert all(day.store == "redis" for day in days if any(each.name == "kill redis" for each in day.misfortunes))


def test_a_seed_gives_the_same_days_over_the_ways(tmp_path):
    first, second = (draw_ways(random.Random(7), 30, tmp_path) for _ in range(2))
    assert [(*map(str, day.misfortunes), str(day.training)) for day in first] == [
        (*map(str, day.misfortunes), str(day.training)) for day in second
    ]


async def test_a_stream_yields_nothing_while_it_pauses():
    batches = [samples(8, seed=seed) for seed in range(3)]
    with PausingStream(batches, 8) as stream:
        reader = iter(stream)
        assert len(next(reader)) == 8
        pause = asyncio.create_task(stream.pause_for(3600))
        await asyncio.sleep(0)
        reading = asyncio.create_task(asyncio.to_thread(list, reader))
        done, _ = await asyncio.wait([reading], timeout=0.2)
        assert not done
        pause.cancel()
        assert list(map(len, await reading)) == [8, 8]


def model(folder, *, versions=(2, 1, 5), features=3, dense=None):
    table = TableSpec("embeddings", 2, OptimizerSpec(), 0, 0.1)
    job = JobSpec(
        name="clicks", workers=1, features=numbered_ids(features), dense_features=1, batch_size=2, workloads=(2,),
        mechanism="joint", policy="emark", seed=0, window=2, tables=(table,), parameter_servers=("none",),
        model=ModelSpec("wdl", (8,), OptimizerSpec()),
    )  # fmt: skip
    rows = np.arange(3, dtype=np.uint64), np.ones((3, 2), np.float32), np.array(versions)
    save_model(folder / "model", job, {"w": np.full(4, 2.0, np.float32)} | (dense or {}), embeddings=rows)
    return folder


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.0),
        ({"dense": {"w": np.array([2, 2, 2, 2.004], np.float32)}}, 1e-3),
        ({"versions": (2, 1, 6)}, float("inf")),
        ({"features": 4}, float("inf")),
        ({"dense": {"other": np.zeros(2, np.float32)}}, float("inf")),
    ],
    ids=["same", "near", "trained once more", "of other samples", "larger"],
)
def test_the_distance_of_two_models(tmp_path, changes, expected):
    undisturbed = model(tmp_path / "undisturbed")
    assert difference(model(tmp_path / "run", **changes), undisturbed) == pytest.approx(expected, rel=1e-2)
