"""Gradients that arrive before their turn: the version before theirs is not made yet.

Workers that keep updates to themselves (`Sync.keeps_copies`) push when their own bounds require it, so the gradients of
one version may still be on their way when another worker sends gradients of the next. The frame then waits, and with it
the later frames of its stream. The waits form no circle: the gradients of a version are sent with an earlier plan than
the gradients of the next.
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
    """Applies a frame as soon as none of its gradients skips a version.

    Args:
        apply: applies the frame; may be called again after SkippedVersion.
        waiting: the waiting pulls of the frame's table, to which every stored row is announced.
        epoch: the epoch of the frame.
        deadline: the time by the event loop's clock until which the frame may wait.

    Raises:
        SkippedVersion: a version is still missing when the wait is over.
        EsdError: `apply` fails for another reason, or the wait is refused or too long.
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
            return await apply()  # again: rows stored before this entry was registered have woken nobody
        except SkippedVersion:
            waiting.wait(entry, deadline)
        await reached.wait()
        entry.check()
        return await apply()
    finally:
        waiting.leave(entry)
