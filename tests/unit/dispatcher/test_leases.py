"""Slots follow from the workers' names, whoever registers first; leases end when nothing is heard."""

import asyncio
import itertools
import time

from dispatcher.service.state.leases import Workers
from dispatcher.service.state.worker_record import WorkerRecord
from services.domain.reports import Registration

NAMES = ["1", "2", "worker-2", "worker-02", "worker-10", "worker-²"]
SLOTS = ["1", "2", "worker-02", "worker-2", "worker-10", "worker-²"]


async def test_slots_by_name() -> None:
    for order in itertools.permutations(NAMES[2:]):
        workers = Workers(len(NAMES), lease_seconds=60.0, on_expired=lambda _: None)
        for name in (*order, *NAMES[:2]):
            workers.register(Registration(name, 1.0, 1, "h:1", "4711"))
        workers.settle_slots()
        assert [(worker.slot, worker.registration.name) for worker in workers] == list(enumerate(SLOTS))


async def test_a_look_that_is_late_leaves_time_to_read_what_came_meanwhile() -> None:
    expired: list[WorkerRecord] = []
    ended = asyncio.Event()
    workers = Workers(1, lease_seconds=0.4, on_expired=lambda worker: (expired.append(worker), ended.set()))
    lease, _ = workers.register(Registration("one", 1.0, 1, "h:1", "4711"))
    worker = workers.holder(lease.lease_id)
    time.sleep(1)  # noqa: ASYNC251 - the event loop stands still
    for _ in range(3):
        await asyncio.sleep(0)  # its timers are due, and what was sent has not been read
    assert not expired
    silent_since = asyncio.get_running_loop().time()
    workers.renew(worker)
    async with asyncio.timeout(60):
        await ended.wait()
    assert expired == [worker]
    assert asyncio.get_running_loop().time() - silent_since >= 0.4
