"""A program without the command trains by the library, in an event loop that does other things meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.events import Checkpointed, Ended, EpochTrained, Evaluated, Event, Progressed, Resumed, Started
from esd.run.options import RunOptions
from esd.run.prepare import prepare
from esd.run.train import train, train_on
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import JobPhase
from tests.support.models import model_arrays

OPTIONS = RunOptions(
    data="synthetic:zipf?samples=1200&fields=4&keys=500",
    workers=2,
    links="100m",
    batch=10,
    dim=4,
    cache_rows=300,
    epochs=2,
    holdout="0.25",
    evaluate_every=20,
    seed=3,
)
ITERATIONS = 2 * 900 // 20


async def test_a_run_within_a_running_loop_reports_what_happens(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events: list[Event] = []
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ticking = asyncio.create_task(tick())
    run = await train(OPTIONS, events.append, out=tmp_path, checkpoint_dir=tmp_path / "kept")
    ticking.cancel()

    assert ticks > 10, "the loop stood still"
    assert run.state.iterations_confirmed == ITERATIONS
    started, *between, ended = [event for event in events if not isinstance(event, Progressed)]
    assert isinstance(started, Started)
    assert (started.table, started.first_iteration, started.iterations) == ("embeddings", 0, ITERATIONS)
    assert started.page is not None
    assert started.page.startswith("http://127.0.0.1:")
    assert ended == Ended(run.state)
    assert [event for event in between if isinstance(event, EpochTrained)] == [EpochTrained(1, 2), EpochTrained(2, 2)]
    evaluated = [event.evaluation for event in between if isinstance(event, Evaluated)]
    assert tuple(evaluated) == run.evaluations
    assert [each.iteration for each in evaluated] == [20, 40, 60, 80, ITERATIONS]
    assert [event.iteration for event in between if isinstance(event, Checkpointed)][-1] == ITERATIONS
    assert run.result()["held_out"]["auc"] == run.evaluations[-1].quality.auc
    model = model_arrays(tmp_path / "model")
    assert {"model.onnx", "model.pt2", "history.parquet"} <= {path.name for path in (tmp_path / "model").iterdir()}
    assert len(model["ids"]) > 0
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers

    assert started.cluster is not None
    for service in started.cluster.services:
        with pytest.raises(ProcessLookupError):
            os.kill(service.process.pid, 0)


async def test_a_run_that_is_cancelled_ends_its_services_and_is_resumed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    slow = RunOptions(
        data="synthetic:zipf?samples=4000&fields=4&keys=500", workers=1, links="1m", batch=10, dim=4, cache_rows=100,
        checkpoint_every=5, iterations=120,
    )  # fmt: skip
    clusters: list[LocalServices] = []
    reached = asyncio.Event()

    def listen(event: Event) -> None:
        match event:
            case Started(cluster=cluster):
                assert cluster is not None
                clusters.append(cluster)
            case Checkpointed(iteration=iteration) if iteration >= 10:
                reached.set()

    running = asyncio.create_task(train(slow, listen, out=tmp_path, checkpoint_dir=kept, graphs=False))
    async with asyncio.timeout(240):
        await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert all(service.process.returncode is not None for service in clusters[0].services)

    events: list[Event] = []
    run = await train(replace(slow, links="1g"), events.append, out=tmp_path, checkpoint_dir=kept, graphs=False)
    (resumed,) = [event for event in events if isinstance(event, Resumed)]
    assert 10 <= resumed.iteration < 120
    assert run.state.iterations_confirmed == 120


async def test_two_runs_on_one_cluster_are_trained_one_after_the_other(tmp_path: Path) -> None:
    first = prepare(OPTIONS, table="first")
    async with LocalServices(
        worker_links=OPTIONS.bandwidths(), cache_rows=[300] * 2, logs=tmp_path, job=first.job
    ) as cluster:
        run = await train_on(cluster, first)
        assert run.job.table.name == "first"
        assert run.state.phase is JobPhase.FINISHED
        await asyncio.gather(*(worker.process.wait() for worker in cluster.workers))  # they end with their job
        await asyncio.gather(*(worker.restart() for worker in cluster.workers))
        again = await train_on(cluster, prepare(OPTIONS, table="second"))
    assert again.result()["loss"] == run.result()["loss"]


async def test_a_listener_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, Progressed):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await train(OPTIONS, listen, out=tmp_path)


async def test_an_option_that_is_wrong_is_refused_by_its_name_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="--links names 3 links for 2 workers"):
        await train(RunOptions(workers=2, links="1m,1m,1m", cache_rows=100), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
