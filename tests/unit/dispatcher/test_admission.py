"""Plans of a job that admits ids in their N-th iteration: the others move nothing, and every sample has all its ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.learned import decode_learned, encode_learned
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.services.domain.batches import SampleBatch
from esd.services.domain.mechanisms import JointOptions
from esd.services.domain.sync import Proactive
from esd.services.wire.plans import decode_iteration_plans
from tests.support.simple_clients import job_with
from tests.unit.dispatcher.test_planner_checkpoint import assert_equal

AFTER = 3


def stream(count: int, *, lists: bool = False) -> list[SampleBatch]:
    rng = np.random.default_rng(4)
    batches = []
    for _ in range(count):
        lengths = rng.integers(0, 4, (8, 3), dtype=np.uint32) if lists else None
        ids = rng.zipf(1.3, 24 if lengths is None else int(lengths.sum())).astype(np.uint64) % 300
        labels = rng.integers(0, 2, (8, 1)).astype(np.float32)
        batches.append(SampleBatch(ids, np.ones((8, 2), np.float32), labels, lengths))
    return batches


def planner(workers: int = 2, **changes) -> Planner:
    job = job_with(workers=workers, workloads=(8 // workers,) * workers, admit_afters=(AFTER,), **changes)
    return Planner(job, [1e6] * workers, [60] * workers)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("mechanism", [*sorted(set(MECHANISMS) - {"brute-force"}), "looks ahead"])
def test_ids_move_from_their_nth_iteration_on(mechanism, lists):
    options = {"mechanism": mechanism}
    if mechanism == "looks ahead":
        options = {"mechanism": "joint", "mechanism_options": JointOptions(horizon=3), "sync": Proactive()}
    made = planner(**options)
    iterations: dict[int, int] = {}
    reads = admitted = 0
    for batch, later in with_lookahead(stream(40, lists=lists), made.lookahead):
        decision = made.plan(batch, later)
        for x in set(batch.ids.tolist()):
            iterations[x] = iterations.get(x, 0) + 1
        assert decision.admitted_rows == sum(iterations[x] == AFTER for x in set(batch.ids.tolist()))
        assert decision.initial_reads == sum(iterations[x] < AFTER for x in set(batch.ids.tolist()))
        reads, admitted = reads + decision.initial_reads, admitted + decision.admitted_rows
        for plan in decision.plans:
            read = np.concatenate((plan.unique_ids, plan.initial_ids))[plan.inverse]
            np.testing.assert_array_equal(read, batch[plan.positions].ids)
            assert all(iterations[x] >= AFTER for x in [*plan.unique_ids.tolist(), *plan.pulls.ids.tolist()])
            assert all(iterations[x] < AFTER for x in plan.initial_ids.tolist())
            assert (np.diff(plan.initial_ids.astype(np.int64)) > 0).all()
        for plan, message in zip(decision.plans, decision.messages, strict=True):
            decoded = decode_iteration_plans(message)
            assert decoded is not None
            assert_equal(decoded[0][0], plan)
    assert reads > 100 < 2 * admitted
    assert made.rows == sum(count >= AFTER for count in iterations.values())


def test_which_ids_are_admitted_depends_on_the_samples_alone():
    figures = []
    for workers, mechanism, sync in ((1, "random", {}), (2, "esd", {}), (4, "joint", {"sync": Proactive()})):
        made = planner(workers, mechanism=mechanism, **sync)
        decisions = [made.plan(batch, later) for batch, later in with_lookahead(stream(30), made.lookahead)]
        initial = [np.unique(np.concatenate([plan.initial_ids for plan in each.plans])).tolist() for each in decisions]
        figures.append((initial, [(each.admitted_rows, each.initial_reads) for each in decisions]))
    assert figures[0] == figures[1] == figures[2]


@pytest.mark.parametrize("workers", [2, 4])
def test_a_planner_goes_on_with_the_counts_of_a_checkpoint_for_any_workers(workers):
    batches = stream(30)
    made = planner()
    for batch in batches[:15]:
        made.plan(batch)
    _, snapshot = made.checkpoint()
    job = replace(planner(workers).job, seed=99, batch_size=8)
    restored = Planner(job, [1e6] * workers, [60] * workers, snapshot=snapshot, warm=False)
    for batch in batches[15:]:
        expected, decision = made.plan(batch), restored.plan(batch)
        assert (decision.admitted_rows, decision.initial_reads) == (expected.admitted_rows, expected.initial_reads)
        assert decision.admitted is not None
        assert expected.admitted is not None
        assert decision.admitted.error == expected.admitted.error > 0
        np.testing.assert_array_equal(decision.trained_samples.ids, expected.trained_samples.ids)


def test_ids_that_never_come_back_leave_nothing_but_their_counts():
    """The sketch has its size from the beginning on; the planner's other knowledge does not grow."""
    made = planner(sync=job_with().sync)
    sizes = []
    for iteration in range(200):
        ids = np.arange(24, dtype=np.uint64) + np.uint64(24 * iteration)
        decision = made.plan(SampleBatch(ids, np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)))
        assert decision.initial_reads == 24
        if iteration in (99, 199):
            sizes.append(len(made.checkpoint()[1].engine))
    assert made.rows == 0
    assert sizes[0] == sizes[1]


def test_a_snapshot_stays_as_it_was_and_a_checkpoint_has_all_of_it():
    made = planner()
    for batch in stream(10):
        made.plan(batch)
    snapshot = made.checkpoint()[1]
    before = {name: array.copy() for name, array in snapshot.learned.items()}
    for batch in stream(10):
        made.plan(batch)
    later = made.checkpoint()[1]
    assert (later.learned["admission/words"] != before["admission/words"]).any()
    encoded = encode_learned(snapshot.learned)
    assert len(encoded) < 2 * 2**20  # a bit for each of 2^23 words, and the few that are not 0
    for found in (snapshot.learned, decode_learned(encoded)):
        assert found.keys() == before.keys()
        for name, array in before.items():
            np.testing.assert_array_equal(found[name], array)


def test_the_memory_of_a_snapshot_that_is_gone_serves_the_next_one():
    made = planner()

    def place() -> int:
        return int(made.checkpoint()[1].learned["admission/words"].ctypes.data)

    assert place() == place()
