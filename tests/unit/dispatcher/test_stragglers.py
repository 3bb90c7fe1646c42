"""A worker is late by comparison with the usual time, and with the progress of the others."""

import pytest

from esd.dispatcher.service.state.stragglers import Stragglers
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.reports import WorkerPhase
from tests.support.simple_clients import registration


def workers_in(*phases, confirmed):
    return [
        WorkerRecord(registration(f"edge-{slot}"), slot, f"lease-{slot}", "peer", confirmed=confirmed, phase=phase)
        for slot, phase in enumerate(phases)
    ]


def after(iterations, seconds, factor=4.0):
    """Reports iterations of equal length, in seconds; the next one is planned and began at the end of the last."""
    stragglers = Stragglers(factor, "ESD_DISPATCHER_STRAGGLER_FACTOR")
    stragglers.planned(0, 0.0)
    for iteration in range(iterations):
        stragglers.confirmed(iteration + 1, iteration + 3, (iteration + 1) * seconds)
    return stragglers, iterations * seconds


@pytest.mark.parametrize(
    ("phases", "late"),
    [
        ((WorkerPhase.COMPUTE, WorkerPhase.ALL_REDUCE, WorkerPhase.PULL), [0]),
        ((WorkerPhase.ALL_REDUCE, WorkerPhase.PUSH, WorkerPhase.COMPUTE), [1, 2]),
        ((WorkerPhase.ALL_REDUCE, WorkerPhase.PULL, WorkerPhase.ALL_REDUCE), [1]),
        ((WorkerPhase.FLUSH, WorkerPhase.IDLE, WorkerPhase.ALL_REDUCE), []),
    ],
)
def test_late_is_who_the_others_wait_for(phases, late):
    stragglers, begun = after(10, seconds=2.0)
    workers = workers_in(*phases, confirmed=10)
    assert stragglers.late(workers, begun + 7.9) == []
    assert [worker.slot for worker in stragglers.late(workers, begun + 8.1)] == late


def test_a_worker_that_has_confirmed_the_iteration_is_not_late():
    stragglers, begun = after(10, seconds=2.0)
    workers = workers_in(WorkerPhase.PUSH, WorkerPhase.PUSH, confirmed=10)
    workers[0].confirmed = 11
    assert [worker.slot for worker in stragglers.late(workers, begun + 9)] == [1]


def test_nobody_knows_what_is_usual_at_first():
    stragglers, begun = after(4, seconds=2.0)
    assert stragglers.deadline is None
    assert stragglers.late(workers_in(WorkerPhase.COMPUTE, confirmed=4), begun + 1000) == []


def test_quick_iterations_may_take_a_second():
    assert after(10, seconds=0.001)[0].deadline == 1.0


def test_a_stream_that_pauses_holds_nobody_up():
    stragglers, begun = after(10, seconds=2.0)
    stragglers.confirmed(11, 11, begun + 2)  # all that is planned
    workers = workers_in(WorkerPhase.PUSH, confirmed=11)
    assert stragglers.late(workers, begun + 1000) == []
    stragglers.planned(11, begun + 1000)
    assert stragglers.late(workers, begun + 1007) == []
    assert stragglers.late(workers, begun + 1009) == workers
