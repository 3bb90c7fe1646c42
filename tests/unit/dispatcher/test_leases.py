"""Slots follow from the workers' names, whoever registers first."""

import itertools

from dispatcher.service.state.leases import Workers
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
