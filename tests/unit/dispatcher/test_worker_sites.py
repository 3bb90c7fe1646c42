"""Worker slots of sites: each is taken by a worker of its site, in any order of arrival."""

from __future__ import annotations

import pytest

from esd.dispatcher.service.state.leases import Workers
from esd.services.domain.errors import FailedPrecondition, ResourceExhausted
from esd.services.domain.reports import Registration

SITES = ("north", "north", "south", "south")


def offer(name: str, site: str) -> Registration:
    return Registration(name, 1e6, 100, f"{name}:1", site=site)


async def workers_of(*offers: tuple[str, str]) -> Workers:
    workers = Workers(4, 60.0, lambda _worker: None, replaceable=True, sites=SITES)
    for name, site in offers:
        workers.register(offer(name, site))
    return workers


FOUR = (("w-3", "south"), ("w-10", "north"), ("w-1", "south"), ("w-2", "north"))


async def test_slots_are_ordered_by_name_within_each_site() -> None:
    workers = await workers_of(*FOUR)
    workers.settle_slots()
    assert workers.names == ["w-2", "w-10", "w-1", "w-3"]


async def test_a_worker_of_another_site_is_refused_by_name() -> None:
    workers = await workers_of()
    with pytest.raises(FailedPrecondition, match=r"at site 'east'.*'north', 'south': set its ESD_WORKER_SITE"):
        workers.register(offer("w", "east"))
    with pytest.raises(FailedPrecondition, match="worker w is at no site"):
        workers.register(offer("w", ""))


async def test_a_third_worker_of_a_site_of_two_is_refused() -> None:
    workers = await workers_of(("a", "north"), ("b", "north"))
    with pytest.raises(ResourceExhausted, match=r"all 2 worker slots of site 'north' are taken.*--sites"):
        workers.register(offer("c", "north"))
    workers.register(offer("c", "south"))


async def test_a_new_worker_takes_the_slot_of_a_lost_one_of_its_site() -> None:
    workers = await workers_of(*FOUR)
    workers.settle_slots()
    for lost in [worker for worker in workers if worker.registration.name in ("w-10", "w-1")]:
        workers.remove(lost)
    workers.register(offer("new", "south"))
    assert workers.names == ["w-2", "w-10", "new", "w-3"]
    with pytest.raises(FailedPrecondition, match="its slot is of site 'south'"):
        workers.register(offer("new", "north"))


async def test_a_site_is_absent_until_one_of_its_workers_waits() -> None:
    workers = await workers_of(*FOUR)
    workers.settle_slots()
    assert workers.absent_sites == ["north", "south"]
    for worker in workers:
        worker.waiting = worker.registration.name == "w-3"
    assert workers.absent_sites == ["north"]
