"""The one edge between a command and the event loop in which a run trains: SIGTERM ends the run in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` in an event loop of its own, and returns its result. SIGTERM cancels it, as Ctrl-C does.

    An exception that a signal's handler raises ends the task that has the processor at that moment, and may end the
    loop before all is cleared up: a job without a driver would keep its dispatcher from the next job.

    Raises:
        SystemExit: it was stopped by SIGTERM, and has cleared up.
    """
    stopped = False

    async def main() -> T:
        working = asyncio.current_task()
        assert working is not None  # noqa: S101 - this is one

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # a second one does not break off what clears up
                stopped = True
                working.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await work

    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # signals are the main thread's
    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if stopped:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
