"""The memory and disk of each service, and the limits that a run will meet, from rows that are given."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.advice.growth import Growth
from esd.advice.limits import Machine, free_disk, free_memory, limits_met
from esd.advice.needs import LOCAL, Load, Needs, Services
from esd.advice.row_counts import RowCounts, TableRows
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.redis.room import RedisRoom
from esd.run.options import RunOptions
from esd.services.domain.features import numbered_ids
from esd.services.domain.footprint import PLANNED_ROW_BYTES, Footprint, filter_bytes
from esd.services.domain.jobs import RowLimitPolicy

MILLION = 10**6
ROOM = Machine(memory=2**50)
RUN = RunOptions(workers=4, batch=64, dim=16)
REDIS = Services(store="redis://127.0.0.1:1")


def counts(rows: int = 5 * MILLION, *, changed: int = 0, new: int = 0, initial_error: float = 0.0) -> RowCounts:
    table = TableRows("embeddings", rows, rows, 0.01, rows, changed, new)
    growth = Growth(np.array([MILLION]), np.array([[float(rows)]]))
    return RowCounts((table,), MILLION, MILLION, True, initial_error, growth)


def needs(
    chosen: RunOptions = RUN,
    counted: RowCounts | None = None,
    services: Services = LOCAL,
    settings: DispatcherSettings | None = None,
    *,
    cache_rows: int = 100_000,
    interval: float = 0.0,
    dense_bytes: int = 10**6,
    device: str = "cpu",
) -> Needs:
    job = chosen.job(features=numbered_ids(26), dense_features=(), parameter_servers=("planned",))
    footprint = Footprint(300e6, 200, 10e3, 0.01, 1e-5, ((dense_bytes // 4,),))
    load = Load(64, cache_rows, sample_bytes=212.0, checkpoint_iterations=interval)
    return Needs(job, counted or counts(), footprint, load, services, settings or DispatcherSettings(), device)


def limits(of: Needs, machine: Machine = ROOM) -> str:
    return "\n".join(limits_met(of, machine, ParameterServerSettings()))


def test_rows_take_the_parameter_servers_what_they_were_measured_to_take() -> None:
    alone = needs().of("parameter server")
    assert alone.memory["rows"] == 5 * MILLION * (68 + 30)
    assert (alone.processes, alone.disk, alone.memory["pre-images"]) == (1, 0, 0)
    shared = needs(services=Services(shards=4)).of("parameter server")
    assert (shared.processes, shared.memory["rows"]) == (4, alone.memory["rows"] // 4)
    wide = needs(replace(RUN, dim=128)).of("parameter server")
    assert wide.memory["rows"] == 5 * MILLION * (516 + 30)


def test_the_large_table_of_the_benchmark_takes_what_was_measured_there() -> None:
    """benchmarks.tables: 132 bytes per row at most with 5.3 million new rows, and 1.43 times the rows on the disk."""
    rows = 5_300_000
    services = Services(checkpoint_dir=Path("/kept"))
    of = needs(replace(RUN, workers=2, batch=1024), counts(rows, changed=rows, new=rows), services,
               cache_rows=120_000, interval=50)  # fmt: skip
    server = of.of("parameter server")
    assert server.each - server.memory["process"] == pytest.approx(132 * rows, rel=0.1)
    assert 1.43 < server.disk / (68 * rows) < 3.5
    assert of.of("dispatcher").each < 750e6, "75 bytes per row and its process were measured, without the shadows"


def test_checkpoints_need_rows_as_they_were_the_samples_of_two_intervals_and_a_disk() -> None:
    changed = counts(changed=MILLION, new=400_000)
    memory = needs(counted=changed, interval=1000).of("parameter server")
    assert memory.memory["pre-images"] == 600_000 * (68 + 30) + 400_000 * 14
    assert memory.memory["samples"] == 2 * 1000 * 256 * 212
    kept = needs(counted=changed, services=Services(checkpoint_dir=Path("/kept")), interval=1000).of("parameter server")
    assert "samples" not in kept.memory
    assert kept.disk > 2.5 * 5 * MILLION * (68 + 16)
    objects = needs(counted=changed, services=Services(checkpoint_dir="s3://bucket/kept"), interval=1000)
    assert objects.of("parameter server").memory == kept.memory
    assert objects.of("parameter server").disk == 0


def test_the_dispatcher_follows_caches_shadows_and_rules() -> None:
    cached = 4 * 100_000 * PLANNED_ROW_BYTES
    default = needs().of("dispatcher").memory
    assert (default["planner"], default["shadows"], default["admission"]) == (cached, 3 * cached, 0)
    assert needs(counted=counts(10**8)).of("dispatcher").each == needs().of("dispatcher").each
    assert needs(services=Services(shadows=())).of("dispatcher").memory["shadows"] == 0
    assert needs(services=Services(shadows=("joint", "laia"))).of("dispatcher").memory["shadows"] == cached
    bounded = needs(settings=DispatcherSettings(shadow_bytes=2 * cached + 1)).of("dispatcher").memory
    assert bounded["shadows"] == 2 * cached
    assert needs(replace(RUN, admit_after=3)).of("dispatcher").memory["admission"] == 64 * 2**20
    timed = needs(replace(RUN, row_ttl=100), services=Services(shadows=())).of("dispatcher").memory
    assert timed["planner"] == cached + 5 * MILLION * (45 + 16)


def test_workers_take_their_measured_footprint_and_a_gpu_is_no_memory_of_the_machine() -> None:
    of = needs()
    assert of.of("worker").each == 300e6 + 64 * 10e3 + 100_000 * 200
    assert of.local_memory == sum(need.processes * need.each for need in of.kinds)
    assert needs(device="cuda").local_memory == of.local_memory - of.of("worker").together


def test_redis_keeps_the_rows_in_place_of_the_parameter_server() -> None:
    of = needs(counted=counts(changed=MILLION, new=MILLION), services=REDIS, interval=10)
    assert "rows" not in of.of("parameter server").memory
    assert of.of("redis").memory["rows"] == 5 * MILLION * (80 + 57)
    assert of.of("redis").memory["pre-images"] == 73 * MILLION
    assert of.of("parameter server").memory["filter of rows"] == filter_bytes(5 * MILLION)
    halves = needs(services=replace(REDIS, shards=2)).of("parameter server")
    assert halves.memory["filter of rows"] == filter_bytes(5 * MILLION // 2)
    assert of.local_memory < needs().local_memory
    running, own = needs(services=REDIS), needs(services=Services(store="valkey"))
    assert own.local_memory == running.local_memory + own.of("redis").each, "a local run starts a Valkey itself"


def test_nothing_is_said_of_a_run_that_fits() -> None:
    assert limits(needs()) == ""


def test_more_rows_than_the_limit_are_told_with_the_place_where_the_run_ends() -> None:
    met = limits(needs(replace(RUN, max_rows=2 * MILLION)))
    assert "will have 5,000,000 rows, and --max-rows allows 2,000,000: the run ends after about 400,000 samples" in met
    assert limits(needs(replace(RUN, max_rows=2 * MILLION, at_max_rows=RowLimitPolicy.FORGET))) == ""
    assert limits(needs(replace(RUN, max_rows=5 * MILLION))) == ""


def test_a_disk_that_is_too_small_is_told() -> None:
    of = needs(services=Services(checkpoint_dir=Path("/kept")), interval=100)
    disk = of.of("parameter server").disk
    assert limits(of, replace(ROOM, disk=disk)) == ""
    assert "the checkpoint directory takes up to 1.02 GiB, and its disk has 1.02 GiB free" in limits(
        of, replace(ROOM, disk=disk - 1)
    )


def test_a_redis_that_is_too_small_is_told() -> None:
    of = needs(services=REDIS)
    needed = of.of("redis").each
    assert limits(of, replace(ROOM, redis=RedisRoom("rows:1", needed, limited=True))) == ""
    full = limits(of, replace(ROOM, redis=RedisRoom("rows:1", needed - 1, limited=True)))
    assert "Redis at rows:1 takes up to 653 MiB, and its maxmemory leaves 653 MiB: raise its maxmemory" in full
    assert "its machine has" in limits(of, replace(ROOM, redis=RedisRoom("rows:1", 0, limited=False)))


def test_a_machine_that_is_too_small_for_all_services_is_told_with_the_largest() -> None:
    of = needs()
    assert limits(of, Machine(of.local_memory)) == ""
    assert "most of it is for the worker, 1.19 GiB" in limits(of, Machine(of.local_memory - 1))


def test_a_model_that_is_refused_and_an_admission_that_keeps_little_out_are_told() -> None:
    assert "raise ESD_PS_MAX_DENSE_BYTES" in limits(needs(dense_bytes=2**32 + 4))
    assert "admits 36% of the new ids at once" in limits(needs(replace(RUN, admit_after=2), counts(initial_error=0.36)))


def test_the_machine_is_looked_at_before_the_directory_is_made(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "yet") > 0
    assert 0 < free_memory() < 2**50
