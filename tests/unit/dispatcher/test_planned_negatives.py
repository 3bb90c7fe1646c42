"""Negatives in plans: each worker gets the lists of its chunks once, and they cost the sender of samples nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.protos.dispatcher_pb2 import AttendResponse
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.jobs import JobSpec
from esd.services.domain.negatives import Negatives
from esd.services.domain.plans import IterationPlan
from esd.services.domain.sync import Proactive
from esd.services.wire.batches import encode_batch
from esd.services.wire.plans import decode_iteration_plans, decode_plan_messages

WORKERS, FIELDS, ENTITIES = 4, 3, 5000


@pytest.fixture
def job(make_job) -> JobSpec:
    made: JobSpec = make_job(mechanism="joint", fields=FIELDS, batch_size=1200, workers=WORKERS)
    return replace(made, negatives=Negatives("negative", ENTITIES, count=200))


@pytest.fixture
def batch() -> SampleBatch:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, ENTITIES, (1200, FIELDS)).astype(np.uint64)
    return SampleBatch.of_fields(ids, np.zeros((1200, 2), np.float32), np.ones(1200, np.float32))


def planner(job: JobSpec, cache_rows: int = 4000) -> Planner:
    return Planner(job, [1e6] * WORKERS, [cache_rows] * WORKERS)


@pytest.mark.parametrize("chunk", [0, 500])
def test_a_plan_has_the_samples_and_the_lists_of_their_chunks(job: JobSpec, batch: SampleBatch, chunk: int) -> None:
    negatives = Negatives("negative", ENTITIES, count=200, chunk=chunk)
    made = planner(replace(job, negatives=negatives))
    for iteration in range(3):
        decision = made.plan(batch)
        drawn = negatives.drawn(job.seed, iteration, negatives.chunks(1200))
        seen = np.zeros(1200, np.int64)
        for plan in decision.plans:
            assert plan.batch_size == 1200
            samples = len(plan.positions)
            assert samples == len(plan.labels) == len(plan.dense) == 300
            seen[plan.positions] += 1
            ids = plan.unique_ids[plan.inverse]
            assert (ids[: samples * FIELDS].reshape(-1, FIELDS) == batch.by_field[plan.positions]).all()
            assert plan.chunks.tolist() == sorted(set(negatives.chunks_of(plan.positions).tolist()))
            assert (ids[samples * FIELDS :].reshape(-1, 200) == drawn[plan.chunks]).all()
        assert (seen == 1).all()


def test_what_workers_read_of_their_plans_is_what_was_planned(job: JobSpec, batch: SampleBatch) -> None:
    decision = planner(replace(job, negatives=Negatives("negative", ENTITIES, count=7, chunk=100))).plan(batch)
    for plan, message in zip(decision.plans, decision.messages, strict=True):
        read = decode_iteration_plans(message)
        assert read is not None
        for found in (read[0][0], decode_plan_messages(AttendResponse.FromString(message))[0]):
            assert isinstance(found, IterationPlan)
            assert found.lengths is None
            for name in ("positions", "labels", "dense", "inverse", "chunks", "unique_ids"):
                np.testing.assert_array_equal(getattr(found, name), getattr(plan, name))


def test_shared_negatives_add_nothing_to_the_samples_and_little_to_the_plans(job: JobSpec, batch: SampleBatch) -> None:
    """A list of its own in each of 1,200 samples would be 1.9 MB to the dispatcher, and as many places in the plans."""
    own = np.concatenate((batch.by_field, np.zeros((1200, 200), np.uint64)), axis=1)
    with_own = SampleBatch.of_fields(own, batch.dense, batch.labels)
    assert encode_batch(batch).ByteSize() * 20 < encode_batch(with_own).ByteSize()
    plain = planner(replace(job, negatives=None)).plan(batch)
    shared = planner(job).plan(batch)
    rows = shared.operations.miss_pull.sum() - plain.operations.miss_pull.sum()
    assert shared.plan_bytes - plain.plan_bytes < 40 * rows + 4096  # as of any row that moves


def test_the_assignment_does_not_depend_on_what_every_worker_needs(job: JobSpec, batch: SampleBatch) -> None:
    plain, shared = planner(replace(job, negatives=None)).plan(batch), planner(job).plan(batch)
    np.testing.assert_array_equal(plain.assignment, shared.assignment)


def test_the_lists_of_later_iterations_are_announced(job: JobSpec, batch: SampleBatch) -> None:
    """With proactive flushing the engine must know the rows of the next iterations, or it pushes other rows ahead."""
    made = planner(replace(job, sync=Proactive()))
    announced = [set(each.ids.tolist()) for each in made._with_all_lists([batch, batch])]
    for iteration, ids in enumerate(announced, 1):
        assert ids >= set(job.negatives.drawn(job.seed, iteration, 1).reshape(-1).tolist())


def test_a_cache_too_small_for_samples_and_negatives_is_refused(job: JobSpec, batch: SampleBatch) -> None:
    own = max(len(np.unique(batch.by_field[plan.positions])) for plan in planner(job).plan(batch).plans)
    with pytest.raises(ResourceExhausted, match="needs"):
        planner(job, own + 50).plan(batch)
