"""Gradients that come before their turn: others still have to make the version of the row that theirs comes behind.

Workers that keep updates to themselves (`Sync.BOUNDED`) push when their own bounds say so. So the gradients of one
version may be on their way when somebody sends those of the next. The frame waits, and those behind it on its stream;
nobody waits in a circle, since a version's gradients are sent with an earlier plan than those of the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.native.rows import ExactPulls
from esd.ps_server.core.gradients import SkippedVersion
from esd.ps_server.service.waiting import WaitingPulls

T = TypeVar("T")


async def in_turn(apply: Callable[[], Awaitable[T]], waiting: WaitingPulls, epoch: int, deadline: float) -> T:
    """Applies a frame as soon as no gradient of it skips a version.

    Args:
        apply: applies it, and may be repeated.
        waiting: hears of all rows that are stored in the frame's table.
        epoch: of the frame.
        deadline: until when it may wait, by the event loop's clock.

    Raises:
        SkippedVersion: the time is over.
        EsdError: whatever `apply` raises; why nothing may be waited for any more.
    """
    try:
        return await apply()
    except SkippedVersion as error:
        if asyncio.get_running_loop().time() >= deadline:
            raise
        skipped = error
    reached = asyncio.Event()
    entry = waiting.join(epoch, reached.set)
    try:
        rows = ExactPulls(skipped.ids, skipped.versions)
        waiting.rows.expect_due(entry.ticket, rows, len(skipped.ids))
        try:
            return await apply()  # what was stored before this entry was made has woken nobody
        except SkippedVersion:
            waiting.wait(entry, deadline)
        await reached.wait()
        entry.check()
        return await apply()
    finally:
        waiting.leave(entry)
