"""What bounds an iteration from below: the links, and the arithmetic of the training steps alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from dispatcher.core.decision import Decision
from dispatcher.core.planner import Planner
from dispatcher.simulator.simulate import simulate
from esd.cli.options import RunOptions
from esd.cli.stream import TrainingStream, global_batches
from services.domain.batches import SampleBatch
from services.domain.jobs import JobSpec
from worker.training.all_reduce import DenseReducer
from worker.training.rows import RowCache
from worker.training.trainer import Trainer

CPU = torch.device("cpu")


class _Recorder(Planner):
    """A planner that notes how long each iteration keeps the links busy when they carry both directions at once."""

    duplex_seconds: list[float]

    def plan(self, batch: SampleBatch, lookahead_batches: Sequence[SampleBatch] = ()) -> Decision:
        """Plans as it always does."""
        decision = super().plan(batch, lookahead_batches)
        moved = decision.moved_bytes
        busiest = np.maximum(moved.miss_pull, moved.update_push + moved.evict_push)
        self.duplex_seconds.append(float((busiest / np.array(self.bandwidths)).max()))
        return decision


def duplex_seconds(
    chosen: RunOptions, job: JobSpec, stream: TrainingStream, cache_rows: int, sample_seconds: float
) -> NDArray[np.float64]:
    """Simulates a run, and returns the least time of each iteration on the links, seconds, float64 [iterations].

    A link carries pushes and pulls at the same time, so a worker needs the longer of the two; all train together, so
    an iteration needs the slowest worker's. Nothing of the next iteration can make use of a link that idles meanwhile:
    what moves early begins when the rows of the iteration before are there.

    Args:
        chosen: the options.
        job: what they stand for.
        stream: all samples of the run.
        cache_rows: of each worker.
        sample_seconds: what a worker computes per sample; balanced workloads depend on it.
    """
    recorder = _Recorder(job, chosen.bandwidths(), [cache_rows] * chosen.workers)
    recorder.duplex_seconds = []
    simulate(recorder, global_batches(stream, stream.batch_size), sample_seconds=[sample_seconds] * chosen.workers)
    return np.array(recorder.duplex_seconds)


def arithmetic_seconds(
    chosen: RunOptions, job: JobSpec, stream: TrainingStream, cache_rows: int, iterations: int
) -> float:
    """Trains the first iterations of a run in this thread, all workers one after another, and nothing else.

    Neither rows nor dense gradients move: rows are what the caches happen to hold, and every worker trains a model of
    its own.

    Returns:
        Mean processor time of an iteration, seconds, of all workers together. The first quarter is a warm-up.
    """
    torch.set_num_threads(1)
    planner = Planner(job, chosen.bandwidths(), [cache_rows] * chosen.workers)
    trainers = [_trainer(job, cache_rows) for _ in range(chosen.workers)]
    spent: list[float] = []
    for batch in itertools.islice(_whole_batches(stream), iterations):
        plans = planner.plan(batch).plans
        began = time.process_time()
        for trainer, plan in zip(trainers, plans, strict=True):
            trainer.step(plan)
        spent.append(time.process_time() - began)
    return float(np.mean(spent[len(spent) // 4 :]))


def _whole_batches(stream: TrainingStream) -> Iterator[SampleBatch]:
    return (batch for batch in global_batches(stream, stream.batch_size) if len(batch) == stream.batch_size)


def _trainer(job: JobSpec, cache_rows: int) -> Trainer:
    cache = RowCache(cache_rows, job.table.row_width, CPU)
    rows = np.zeros((cache_rows, job.table.row_width), np.float32)
    drawn = np.random.default_rng(0).uniform(-1, 1, (cache_rows, job.table.dimension))
    rows[:, : job.table.dimension] = job.table.init_scale * drawn
    cache.write(np.arange(cache_rows, dtype=np.uint32), rows)
    return Trainer(job, cache, DenseReducer(None), CPU)
