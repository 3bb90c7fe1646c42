"""Workers meet over gloo's real connections, whose thread does not take the processor from those that train."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from esd.services.domain.errors import Unavailable
from esd.services.domain.framing import framing_bytes
from esd.services.domain.plans import Membership
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime import metrics
from esd.worker.service.link import Link
from esd.worker.service.ring_link import RingLink
from esd.worker.training.all_reduce import GroupStore, join_group
from tests.support.free_link import FreeLink
from tests.support.simple_clients import job_with

WORKERS = 2


def policy_of(thread: int = 0) -> int:
    return os.sched_getscheduler(thread)


def gloo_threads() -> list[int]:
    """The threads of this process that serve gloo's connections; others may end meanwhile."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            if (task / "comm").read_text().startswith("gloo_tcp_loop"):
                found.append(int(task.name))
    return found


def join_all(timeout, *links):
    """Lets all workers meet, and returns their reducers."""
    kept, job = HashStore(), job_with(workers=WORKERS)
    store = GroupStore(lambda key, value: kept.set(key, value.hex()), lambda key: bytes.fromhex(kept.get(key).decode()))

    def join(slot, link):
        membership = Membership(0, slot, job, WorkerSet.all_of(WORKERS), 0)
        return join_group(membership, store, "127.0.0.1", timeout, link)

    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(join, range(WORKERS), links))


def test_a_worker_that_leaves_stops_waiting_long_before_the_timeout():
    """gloo keeps a sum until its timeout, which the group waits for; the thread that trains does not."""
    timeout = 8.0
    one, other = join_all(timeout, FreeLink(), FreeLink())
    one.start(torch.ones(3))
    with ThreadPoolExecutor(2) as threads:
        began = time.monotonic()
        waiting = threads.submit(one.wait)
        closing = threads.submit(one.close)
        with pytest.raises(Unavailable, match="has left the epoch"):
            waiting.result()
        assert time.monotonic() - began < timeout / 2
        with pytest.raises(Unavailable, match="has left the epoch"):
            one.start(torch.ones(3))
        other.close()
        closing.result()


class EndsAfterLookUp:
    """A sum that ends between a look-up, which finds that it runs, and the next question."""

    def __init__(self, work, end):
        self._work, self._end = work, end

    def wait(self, within=None):
        if within is not None:
            self._end()
            self._work.wait()
            raise RuntimeError("Operation timed out!")
        self._work.wait()

    def is_completed(self):
        return self._work.is_completed()


def test_a_sum_that_ends_just_after_a_look_up_has_not_failed():
    one, other = join_all(60, FreeLink(), FreeLink())
    gradients = torch.ones(3)
    one.start(gradients)
    one._running = [EndsAfterLookUp(work, lambda: other.start(torch.ones(3))) for work in one._running]
    one.wait()
    other.wait()
    assert gradients.tolist() == [2, 2, 2]
    one.close()
    other.close()


async def test_a_ring_is_as_fast_as_its_slowest_link():
    """The fast worker has the sum when the bytes of every piece have passed the slow one's link, in both directions."""
    loop, size, burst = asyncio.get_running_loop(), 100_000, 20_000
    fast, slow = Link(1e9, shape=True), Link(1e6, shape=True)
    reducers = await asyncio.to_thread(join_all, 60, RingLink(fast, loop), RingLink(slow, loop))
    pieces = [[torch.ones(size // 4), torch.ones(size // 4)] for _ in reducers]
    began = time.monotonic()

    def summed(reducer, own):
        for piece in own:
            reducer.start(piece)
        reducer.wait()
        return time.monotonic() - began

    try:
        seconds = await asyncio.gather(*map(asyncio.to_thread, [summed] * 2, reducers, pieces))
        # Each of two workers sends, and receives, all values.
        assert all(taken >= (2 * size - burst) / 1e6 for taken in seconds)
        assert all(bool((piece == 2).all()) for own in pieces for piece in own)
        assert slow.count.take().link_dense_down == fast.count.take().link_dense_up == 2 * size
    finally:
        for reducer in reducers:
            reducer.close()


async def test_a_worker_that_leaves_does_not_wait_for_its_link():
    link = Link(1000, shape=True)
    reducers = await asyncio.to_thread(join_all, 8.0, RingLink(link, asyncio.get_running_loop()), FreeLink())
    reducers[0].start(torch.ones(10**6))  # an hour
    waiting = asyncio.create_task(asyncio.to_thread(reducers[0].wait))
    await asyncio.to_thread(reducers[0].close)
    with pytest.raises(Unavailable, match="has left the epoch"):
        await waiting
    reducers[1].close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has SCHED_BATCH")
async def test_gloos_thread_waits_for_its_turn_and_the_worker_does_not():
    kept = HashStore()
    store = GroupStore(lambda key, value: kept.set(key, value.hex()), lambda key: bytes.fromhex(kept.get(key).decode()))
    before, job, loop = set(gloo_threads()), job_with(workers=WORKERS), asyncio.get_running_loop()
    links = [Link(1e9, shape=False) for _ in range(WORKERS)]

    def join(slot):
        membership = Membership(0, slot, job, WorkerSet.all_of(WORKERS), 0)
        reducer = join_group(membership, store, "127.0.0.1", 60, RingLink(links[slot], loop))
        return reducer, policy_of()

    with ThreadPoolExecutor(WORKERS) as threads:
        (one, first), (other, second) = threads.map(join, range(WORKERS))
    try:
        assert [policy_of(thread) for thread in gloo_threads() if thread not in before] == [os.SCHED_BATCH] * WORKERS
        assert first == second == policy_of() == os.SCHED_OTHER
        sent = metrics.DENSE_BYTES.labels("all-reduce", "sent")
        before = sent._value.get()
        sums = [torch.ones(3), torch.full((3,), 2.0)]
        for reducer, values_of_one in zip((one, other), sums, strict=True):
            reducer.start(values_of_one)
        for reducer in (one, other):
            reducer.wait()
        assert all(each.tolist() == [3.0] * 3 for each in sums)
        assert sent._value.get() - before == 2 * 12  # each of two workers sends all of its three values, in halves
        counted = links[0].count.take()
        assert counted.link_dense_up == counted.link_dense_down == 12
        assert counted.link_framing_up == framing_bytes(12)
    finally:
        one.close()
        other.close()
