"""A set of workers is a set of slots, and its mask goes over the wire."""

from hypothesis import given
from hypothesis import strategies as st

from esd.services.domain.worker_set import MAX_WORKERS, WorkerSet

SLOTS = st.sets(st.integers(0, MAX_WORKERS - 1))


@given(SLOTS)
def test_a_worker_set_holds_its_slots_in_order(slots: set[int]) -> None:
    workers = WorkerSet.of(slots)
    assert list(workers) == sorted(slots)
    assert len(workers) == len(slots)
    assert {slot for slot in range(-1, MAX_WORKERS + 1) if slot in workers} == slots
    assert workers.mask == sum(1 << slot for slot in slots) < 1 << MAX_WORKERS
    assert WorkerSet(workers.mask) == workers


@given(SLOTS, SLOTS)
def test_one_set_is_part_of_another_when_all_its_slots_are(some: set[int], others: set[int]) -> None:
    assert (WorkerSet.of(some) <= WorkerSet.of(others)) == (some <= others)


@given(st.integers(0, MAX_WORKERS))
def test_all_of_a_job_are_the_slots_from_zero(workers: int) -> None:
    assert list(WorkerSet.all_of(workers)) == list(range(workers))
