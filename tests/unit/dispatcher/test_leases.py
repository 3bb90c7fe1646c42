"""Slots follow from the workers' names, in any order of registration; leases end after a silence."""

import asyncio
import itertools

import pytest

from esd.dispatcher.service.state.leases import Workers
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.reports import Registration

NAMES = ["1", "2", "worker-2", "worker-02", "worker-10", "worker-²"]
SLOTS = ["1", "2", "worker-02", "worker-2", "worker-10", "worker-²"]


async def test_slots_by_name() -> None:
    for order in itertools.permutations(NAMES[2:]):
        workers = Workers(len(NAMES), lease_seconds=60.0, on_expired=lambda _: None)
        for name in (*order, *NAMES[:2]):
            workers.register(Registration(name, 1.0, 1, "h:1", "4711"))
        workers.settle_slots()
        assert [(worker.slot, worker.registration.name) for worker in workers] == list(enumerate(SLOTS))


async def test_time_for_which_the_dispatcher_stood_still_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it where the machine of its workers stood still, too: all of them are heard again afterwards."""
    expired: list[WorkerRecord] = []
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    workers = Workers(1, lease_seconds=60.0, on_expired=expired.append)
    lease, _ = workers.register(Registration("one", 1.0, 1, "h:1", "4711"))
    worker = workers.holder(lease.lease_id)

    async def passes(seconds: float) -> None:
        nonlocal now
        now += seconds
        for _ in range(3):
            await asyncio.sleep(0)  # timers are due, and what was sent has not been read

    for stall in (57.0, 10.0, 70.0, 300.0):
        await passes(5)
        await passes(stall)
        assert not expired
        workers.renew(worker)
    heard, now = now, now + 1
    while not expired:
        assert now - heard < 65
        await passes(0.5)
    assert now - heard >= 60
