"""Samples that stay at their sites: every mechanism keeps them there, and assigns each site's as it would alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.mechanisms import MECHANISMS, Replay
from esd.dispatcher.core.planner import Planner
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.domain.features import Feature
from esd.services.domain.job_samples import check_form
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.losses import Loss
from esd.services.domain.mechanisms import JointOptions
from esd.services.domain.sites import WorkerSites, site_key
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.plan_messages import message_of

_SITES = ("north", "south", "north", "south")


def _job(mechanism: str, batch: int, **options: object) -> JobSpec:
    return JobSpec(
        name="sites", workers=4, features=(Feature("user"), Feature("item")), dense_features=0, batch_size=batch,
        workloads=equal_workloads(batch, 4), mechanism=mechanism, policy="emark", seed=3, window=2,
        tables=(TableSpec("rows", 4, OptimizerSpec(), 0, 0.1),),
        model=ModelSpec("wdl", (4,), OptimizerSpec(), loss=Loss.BCE), parameter_servers=("127.0.0.1:1",),
        **{"sites": _SITES} | options,  # type: ignore[arg-type]
    )  # fmt: skip


def _batch(rng: np.random.Generator, samples: int, at: list[str] | None = None) -> SampleBatch:
    ids = np.stack([rng.integers(0, 40, samples), 100 + rng.zipf(1.5, samples) % 30], axis=1).astype(np.uint64)
    names = rng.choice(["north", "south"], samples, p=[0.75, 0.25]) if at is None else at
    batch = SampleBatch.of_fields(ids, np.empty((samples, 0), np.float32), np.zeros(samples, np.float32))
    return replace(batch, sites=np.array([site_key(name) for name in names], np.uint64))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_keeps_samples_at_their_sites(mechanism: str) -> None:
    rng = np.random.default_rng(1)
    size = 8 if mechanism == "brute-force" else 32
    planner = Planner(_job(mechanism, size), [1e8, 1e7, 1e8, 1e7], [400] * 4)
    assert planner.lookahead in (0, 1)
    batches = [_batch(rng, size) for _ in range(12)] + [_batch(rng, size, ["south"] * size), _batch(rng, 5)]
    for number, batch in enumerate(batches):
        decision = planner.plan(batch, batches[number + 1 : number + 1 + planner.lookahead])
        keys = np.array([site_key(name) for name in _SITES], np.uint64)
        assert (keys[decision.assignment] == batch.sites).all()
        of_site = [int((batch.sites == site_key(name)).sum()) for name in ("north", "south")]
        loads = decision.workloads.tolist()
        assert [loads[0] + loads[2], loads[1] + loads[3]] == of_site
        assert max(abs(loads[0] - loads[2]), abs(loads[1] - loads[3])) <= 1  # shared evenly by a site's workers


def test_an_assignment_that_takes_a_sample_away_is_refused() -> None:
    batch = _batch(np.random.default_rng(0), 4, ["north", "south", "north", "south"])
    replay = Replay(np.array([[0, 1, 1, 3]], np.int32), 4)
    planner = Planner(_job("random", 4), [1e8] * 4, [100] * 4, mechanism=replay)
    with pytest.raises(InvalidArgument, match=r"sample 2 is of site 'north', .* to worker 1 of site 'south'"):
        planner.plan(batch)


def test_a_sample_of_a_site_without_workers_is_refused() -> None:
    planner = Planner(_job("joint", 4), [1e8] * 4, [100] * 4)
    batch = _batch(np.random.default_rng(0), 4, ["north", "south", "east", "south"])
    with pytest.raises(InvalidArgument, match=r"sample 2 .* of a site without workers.*'north', 'south' \(--sites"):
        planner.plan(batch)
    with pytest.raises(InvalidArgument, match="workers of job sites have sites, and its samples have none"):
        planner.plan(replace(batch, sites=None))


def test_samples_with_sites_need_workers_with_sites() -> None:
    planner = Planner(_job("joint", 4, sites=()), [1e8] * 4, [100] * 4)
    with pytest.raises(InvalidArgument, match="samples of job sites have sites, and its workers have none"):
        planner.plan(_batch(np.random.default_rng(0), 4))


def test_a_site_may_have_more_samples_than_its_workers_take() -> None:
    planner = Planner(_job("joint", 8), [1e8] * 4, [100] * 4, worker_limits=[(0, 3)] * 4)
    with pytest.raises(ResourceExhausted, match=r"4 samples for worker 0 of site 'north', which takes 3 \(ESD_W"):
        planner.plan(_batch(np.random.default_rng(0), 8, ["north"] * 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": ("north",)}, "1 sites given for 4 workers"),
        ({"sites": ("north", "", "a", "b")}, "site of worker 1 is ''"),
        ({"workload_limits": (1, 8)}, "--workloads balanced, or --sites"),
        ({"mechanism_options": JointOptions(horizon=2)}, "leave out --horizon, or --sites"),
        ({"workloads": (4, 0, 4, 0)}, "workers of site 'south' have workloads of 0"),
    ],
)
def test_a_job_that_cannot_keep_samples_at_sites_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        replace(_job("joint", 8), **options)  # type: ignore[arg-type]


def test_what_a_mechanism_learns_of_a_site_outlives_a_checkpoint() -> None:
    rng = np.random.default_rng(5)
    batches = [_batch(rng, 32) for _ in range(9)]
    job = _job("hash", 32)
    planner = Planner(job, [1e8] * 4, [400] * 4)
    for batch in batches[:5]:
        planner.plan(batch)
    _, snapshot = planner.checkpoint()
    again = Planner(job, [1e8] * 4, [400] * 4, snapshot=snapshot)
    for batch in batches[5:]:
        assert again.plan(batch).assignment.tolist() == planner.plan(batch).assignment.tolist()


def test_an_absent_worker_of_a_site_leaves_its_samples_to_the_other() -> None:
    sites = WorkerSites(_SITES)
    assert sites.workloads([10, 3], [8, 8, 0, 8]).tolist() == [10, 2, 0, 1]
    with pytest.raises(InvalidArgument, match="3 samples of a batch are of site 'south', which has no worker"):
        sites.workloads([10, 3], [8, 0, 8, 0])


def test_plans_carry_references_in_place_of_labels_and_dense_features() -> None:
    rng = np.random.default_rng(2)
    job, samples = replace(_job("joint", 32), dense_features=13), _batch(rng, 32)
    travelling = replace(samples, dense=rng.random((32, 13), np.float32))
    nothing, references = np.empty((32, 0), np.float32), rng.integers(0, 2**63, 32).astype(np.uint64)
    staying = replace(samples, labels=nothing, dense=nothing, references=references)
    whole, referred = (Planner(job, [1e8] * 4, [400] * 4).plan(batch) for batch in (travelling, staying))
    assert (whole.assignment == referred.assignment).all()
    # 14 numbers of 4 bytes become one of 8, and the lengths of fields take a few bytes.
    assert whole.plan_bytes - referred.plan_bytes == pytest.approx(32 * (14 * 4 - 8), abs=8 * 4)
    for message, plan in zip(referred.messages, referred.plans, strict=True):
        assert message == message_of(plan, 2)
        assert plan.references is not None
        assert plan.references.tolist() == references[plan.positions].tolist()
        assert (plan.labels.shape[1], plan.dense.shape[1]) == (0, 0)


def test_samples_with_and_without_references_are_told_apart() -> None:
    samples = _batch(np.random.default_rng(0), 4)
    nothing = np.empty((4, 0), np.float32)
    staying = replace(samples, labels=nothing, dense=nothing, references=np.arange(4, dtype=np.uint64))
    check_form(samples, _job("esd", 4))
    check_form(staying, _job("esd", 4, by_reference=True))
    with pytest.raises(InvalidArgument, match=r"has references to .*, which travel in job sites \(--site-values\)"):
        check_form(staying, _job("esd", 4))
    with pytest.raises(InvalidArgument, match=r"has no references to .*, which stay at their sites in job sites"):
        check_form(samples, _job("esd", 4, by_reference=True))
