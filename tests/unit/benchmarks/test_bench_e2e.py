"""The end-to-end benchmark: processor time belongs to the right process and thread, and bounds are right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.e2e.bounds import arithmetic_seconds, duplex_seconds, observed
from benchmarks.e2e.comparison import Measured
from benchmarks.e2e.processors import ProcessorTime
from benchmarks.e2e.report import tables
from esd.dispatcher.core.decision_log import DecisionLog, IterationPlanned, Observed
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.run.options import RunOptions
from esd.run.stream import global_batches, training_stream
from esd.services.domain.features import numbered_ids
from esd.services.runtime.threads import named_threads

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=4&keys=500",
    workers=3,
    links="80m,80m,8m",
    batch=8,
    dim=16,
    cache_rows=100,
    iterations=12,
)


def use_processor(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processor_time_is_told_by_thread() -> None:
    with named_threads("esd-busy") as pool:
        pool.submit(use_processor, 0.0).result()  # the thread is there
        before = ProcessorTime.of(os.getpid())
        pool.submit(use_processor, 0.2).result()
        gone = threading.Thread(target=use_processor, args=(0.1,))
        gone.start()
        gone.join()
        spent = ProcessorTime.of(os.getpid()) - before
    assert spent.threads["esd-busy"] >= 0.19
    assert spent.threads["main"] < 0.1
    others = sum(spent.threads.values()) - spent.threads["esd-busy"] - spent.threads["main"]
    assert others >= 0.09, "a thread that has ended, or is about to"
    assert spent.total == pytest.approx(sum(spent.threads.values()))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_has_ended_is_none() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(ProcessLookupError, match=str(ended.pid)):
        ProcessorTime.of(ended.pid)


def test_the_links_bound_is_the_longer_direction_of_the_slowest_worker() -> None:
    stream = training_stream(OPTIONS)
    job = OPTIONS.job(
        features=numbered_ids(4), dense_features=stream.dataset.dense_features, parameter_servers=("none",)
    )
    seconds = duplex_seconds(OPTIONS, job, stream, 100, {})
    assert len(seconds) == 12
    planner = Planner(job, [10e6, 10e6, 1e6], [100] * 3)
    for batch, least in zip(global_batches(stream, 24), seconds, strict=True):
        decision = planner.plan(batch)
        moved = decision.moved_bytes
        down, up = moved.miss_pull - decision.unsent_bytes, moved.update_push + moved.evict_push
        assert least == pytest.approx(max(np.maximum(down, up) / [10e6, 10e6, 1e6]))
    assert np.all(seconds > 0)


def test_the_links_bound_is_that_of_the_workloads_that_ran(tmp_path: Path) -> None:
    options = replace(OPTIONS, workloads="balanced")
    stream = training_stream(options)
    job = options.job(
        features=stream.dataset.features, dense_features=stream.dataset.dense_features, parameter_servers=("none",)
    )
    planner = Planner(job, [10e6, 10e6, 1e6], [100] * 3)
    log = DecisionLog(tmp_path / "decisions", {}, resume=False)
    planned = []
    for iteration, batch in enumerate(global_batches(stream, 24)):
        if iteration >= job.window:  # the second worker computes for ever longer
            feedback = Feedback(np.array([0.01, 0.01 * iteration, 0.01]), np.zeros(3))
            log.add(Observed(feedback.seconds.tolist(), feedback.bandwidths.tolist()))
            planner.observe(feedback)
        decision = planner.plan(batch)
        moved = decision.moved_bytes
        log.add(IterationPlanned(iteration, "digest"))
        down, up = moved.miss_pull - decision.unsent_bytes, moved.update_push + moved.evict_push
        planned.append(max(np.maximum(down, up) / [10e6, 10e6, 1e6]))
    log.close()
    followed = duplex_seconds(options, job, stream, 100, observed(tmp_path / "decisions"))
    assert followed == pytest.approx(planned)
    assert followed != pytest.approx(duplex_seconds(options, job, stream, 100, {}))


def test_the_arithmetic_needs_no_services() -> None:
    stream = training_stream(OPTIONS)
    job = OPTIONS.job(
        features=numbered_ids(4), dense_features=stream.dataset.dense_features, parameter_servers=("none",)
    )
    assert 0 < arithmetic_seconds(OPTIONS, job, stream, 100, iterations=8) < 1


def test_figures_are_medians_over_the_turns_and_times_by_the_larger_bound() -> None:
    run = Measured(
        data="flights", mechanism="joint", turn=0, load=1.0, iterations=100, iterations_per_second=20.0,
        processor_ms={"worker-0": 10.0, "worker-1": 14.0, "ps-0": 6.0}, thread_ms={"worker": {"main": 5.0}},
        pulled_bytes=2e6, pushed_bytes=1e6, direct_bytes=5e5, links_ms=40.0, processors_ms=15.0, arithmetic_ms=8.0,
    )  # fmt: skip
    assert run.over_bound == pytest.approx(50 / 40)
    assert run.kinds == {"worker": 24.0, "ps": 6.0}
    others = [replace(run, turn=turn, iterations_per_second=rate) for turn, rate in ((1, 25.0), (2, 10.0))]
    rates, processors, threads = tables([run, *others])
    assert list(rates.columns[1].cells) == ["20.00"]
    assert list(rates.columns[2].cells) == ["10.0-25.0"]
    assert [list(column.cells) for column in rates.columns][-3:] == [["2.00"], ["1.00"], ["0.50"]]  # MB
    assert [cell for column in processors.columns for cell in column.cells] == ["joint", "24.0", "6.0", "30.0"]
    assert [cell for column in threads.columns for cell in column.cells] == ["worker", "main", "5.00"]
