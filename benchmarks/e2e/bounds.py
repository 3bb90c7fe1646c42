"""Lower bounds of an iteration: the links, and the arithmetic of the training steps alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from esd.dispatcher.core.decision_log import IterationPlanned, Observed, read_decisions
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec
from esd.worker.training.reducer import Alone
from esd.worker.training.rows import RowCache
from esd.worker.training.trainer import Trainer

CPU = torch.device("cpu")


def observed(log: Path) -> dict[int, Feedback]:
    """Returns the measurements that the decisions of a run used: the feedback before each iteration.

    Args:
        log: the decision log of a run without a recovery.
    """
    feedback: dict[int, Feedback] = {}
    planned = 0
    for record in read_decisions(log):
        match record:
            case Observed():
                feedback[planned] = record.feedback()
            case IterationPlanned():
                planned += 1
    return feedback


def duplex_seconds(
    chosen: RunOptions, job: JobSpec, stream: TrainingStream, cache_rows: int, feedback: Mapping[int, Feedback]
) -> NDArray[np.float64]:
    """Plans a run again, and returns the least time of each iteration on the links, seconds, float64 [iterations].

    A link carries pushes and pulls at the same time, so a worker needs the longer of the two; all train together, so an
    iteration needs the slowest worker's. A run may take some percent less: a worker that has its rows begins to move
    the rows of the next iteration while others still wait, and the slowest worker changes.

    Args:
        chosen: the options of the run.
        job: the job with these options.
        stream: all samples of the run.
        cache_rows: of each worker.
        feedback: the measurements that the run's decisions used; none if they used none.
    """
    planner = Planner(job, chosen.bandwidths(), [cache_rows] * chosen.workers)
    seconds = []
    batches = with_lookahead(global_batches(stream, stream.batch_size), planner.lookahead)
    for iteration, (batch, later) in enumerate(batches):
        if iteration in feedback:
            planner.observe(feedback[iteration])
        decision = planner.plan(batch, later)
        moved = decision.moved_bytes
        busiest = np.maximum(moved.miss_pull - decision.unsent_bytes, moved.update_push + moved.evict_push)
        seconds.append(float((busiest / np.array(planner.bandwidths)).max()))
    return np.array(seconds)


def arithmetic_seconds(
    chosen: RunOptions, job: JobSpec, stream: TrainingStream, cache_rows: int, iterations: int
) -> float:
    """Trains the first iterations of a run in this thread, all workers one after another, without services.

    Neither rows nor dense gradients move: the values of rows are arbitrary, and every worker trains its own model.

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
    return Trainer(job, [cache], Alone(), CPU)
