"""The streams of observers, which see the plans of all workers.

An observer reads the plans that the job keeps for all observers (state/plan_history.py), so it costs nothing while it
does not read. The moves of plans are computed in one thread for all observers: however many read, they take one
processor at most, and never the planner's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.run.moves import moves_of
from esd.dispatcher.service.state.plan_history import KeptPlans
from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.state import JobPhase
from esd.services.runtime import metrics
from esd.services.runtime.tasks import run_in
from esd.services.wire.watched import WatchRequest, watched_in_pieces

MOST_OBSERVERS = 64  # of a dispatcher; each holds a stream
_LATEST_BYTES = 64 * 2**20  # of messages that are kept for observers at the same place; the latest plans stay
_LATEST_PLANS = 16  # whose messages are kept at most


@dataclass(frozen=True, slots=True)
class _Latest:
    """Plans with their messages, which have so many bytes."""

    plans: KeptPlans
    messages: Sequence[pb.WatchPlansResponse]
    bytes: int


class Observers:
    """The observers of a dispatcher.

    Args:
        thread: computes the moves; it must have one thread.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._watching = 0
        self._latest: dict[tuple[int, bool], _Latest] = {}
        self._latest_bytes = 0

    async def watch(self, job: Job, request: WatchRequest) -> AsyncGenerator[pb.WatchPlansResponse]:
        """Yields the plans of a job from an iteration on, as they are published, until the job is finished.

        Args:
            job: the job.
            request: the first plans, and whether the ids are wanted.

        Raises:
            ResourceExhausted: too many observers watch.
            FailedPrecondition: the plans are no longer kept; or the job failed.
            Unavailable: the dispatcher is stopping.
        """
        if self._watching >= MOST_OBSERVERS:
            raise ResourceExhausted(f"{MOST_OBSERVERS} observers watch plans, and a dispatcher serves no more")
        self._watching += 1
        metrics.PLAN_OBSERVERS.inc()
        try:
            async with aclosing(_published(job, request)) as published:
                async for kept in published:
                    longest = job.settings.max_message_bytes
                    for message in await run_in(self._thread, self._messages_of, kept, request.ids, longest):
                        yield message
        finally:
            self._watching -= 1
            metrics.PLAN_OBSERVERS.dec()

    def _messages_of(self, kept: KeptPlans, ids: bool, longest: int) -> Sequence[pb.WatchPlansResponse]:
        """Returns the messages of published plans, which one observer after the other asks for; runs in the thread."""
        key = (id(kept), ids)  # of plans that the entry keeps alive
        if key not in self._latest:
            messages = watched_in_pieces(moves_of(kept, ids=ids), longest)
            latest = _Latest(kept, messages, sum(message.ByteSize() for message in messages))
            self._latest[key] = latest
            self._latest_bytes += latest.bytes
            while len(self._latest) > (_LATEST_PLANS if self._latest_bytes <= _LATEST_BYTES else 1):
                self._latest_bytes -= self._latest.pop(next(iter(self._latest))).bytes
        return self._latest[key].messages


async def _published(job: Job, request: WatchRequest) -> AsyncGenerator[KeptPlans]:
    history = job.plan_history
    number, first = history.end, request.from_iteration or 0
    present = job.epoch.number if job.epoch is not None else None
    epoch = present if request.epoch is None else request.epoch
    if request.from_iteration is not None and epoch is not None:
        number = history.find(epoch, first)
    changed = asyncio.Event()
    with job.lifecycle.told_by(changed.set):
        while True:
            changed.clear()
            while number < history.end:
                kept = history.get(number)
                number += 1
                if epoch is None:  # the first one begins only now
                    epoch = kept.epoch
                if kept.position >= (epoch, first, 0):
                    yield kept
            if job.lifecycle.phase is JobPhase.FINISHED:
                return
            job.lifecycle.raise_if_failed()
            await changed.wait()
