"""A worker's part in one epoch whose stream is in a thread of its own, so that no step of its caller holds it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Self

from esd.services.clients.attendance import Attendance
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.plans import PlanMessage
from esd.services.domain.reports import Lease, Report, WorkerPhase
from esd.services.runtime.loop_thread import LoopThread
from esd.services.runtime.tasks import settle

if TYPE_CHECKING:
    from esd.services.clients.dispatcher_async import AsyncDispatcherClient


class AttendanceAside:
    """A worker's part in one epoch, `esd.services.clients.attendance.Attendance` for a caller that may block its loop.

        async with dispatcher.attend(lease) as attendance:
            async for message in attendance:
                ...
                await attendance.report(report)

    Inside the block heartbeats keep the lease alive, and the stream is read, in a thread of its own: a step that
    blocks the event loop of the caller, such as one of torch, loses no lease. Iteration yields the dispatcher's
    messages, each once; it raises the errors of `Attendance.__anext__`.

    Args:
        connect: makes a client in the thread, since a client belongs to the loop that it is made in.
        lease: of the worker.
        from_iteration: the first wanted plan; the epoch's first if that is later.
        phase: returns the worker's phase, for each heartbeat, in the thread.
    """

    def __init__(
        self,
        connect: Callable[[], AsyncDispatcherClient],
        lease: Lease,
        from_iteration: int,
        phase: Callable[[], WorkerPhase],
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._from_iteration = from_iteration
        self._phase = phase
        self._caller = asyncio.get_running_loop()
        # The dispatcher bounds it: it sends a worker few plans beyond those that the worker has confirmed.
        self._messages: asyncio.Queue[PlanMessage | Exception] = asyncio.Queue()
        self._thread: LoopThread | None = None
        self._opened = AsyncExitStack()  # in the thread
        self._attendance: Attendance | None = None
        self._reading: asyncio.Task[None] | None = None
        self._left: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._thread = LoopThread("esd-attendance")
        try:
            await asyncio.wrap_future(self._thread.submit(self._open()))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the stream, and ends the thread. Unanswered reports fail with Unavailable."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        closing = thread.submit(self._close())
        closing.add_done_callback(lambda _: thread.end())  # also if the caller is cancelled, and does not wait for it
        await asyncio.shield(asyncio.wrap_future(closing))
        thread.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PlanMessage:
        """Returns the next message; the last one is the end of the sample stream."""
        message = await self._messages.get()
        if isinstance(message, Exception):
            self._messages.put_nowait(message)  # for the next call
            raise message
        return message

    def report(self, report: Report) -> asyncio.Future[None]:
        """Sends a report: of an iteration, of a flush, or of a failure of the worker. It may be repeated.

        Returns:
            The dispatcher's answer, which need not be awaited. It raises the errors of `Attendance.report`.
        """
        answer: asyncio.Future[None] = self._caller.create_future()
        if self._thread is None:
            settle(answer, Unavailable("the worker has closed its stream"))
        else:
            self._thread.call(self._report, report, answer)
        return answer

    # --- in the thread -------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        client = await self._opened.enter_async_context(self._connect())
        attendance = client.attend_here(self._lease, self._from_iteration, phase=self._phase_of_caller)
        self._attendance = await self._opened.enter_async_context(attendance)
        self._reading = asyncio.create_task(self._read(self._attendance), name="attendance_aside")

    async def _close(self) -> None:
        await self._opened.aclose()
        if self._reading is not None:  # it has found the end
            await self._reading

    def _phase_of_caller(self) -> WorkerPhase:
        """Returns the phase. A caller whose loop is closed has left without a word: its lease must end, too."""
        if self._caller.is_closed() and self._thread is not None:
            thread, self._thread = self._thread, None
            self._left = asyncio.create_task(self._close(), name="attendance_left")
            self._left.add_done_callback(lambda _: thread.end())
        return self._phase()

    async def _read(self, attendance: Attendance) -> None:
        """Hands the messages over to the caller's loop, and at last the reason of the end."""
        end: Exception = StopAsyncIteration()
        try:
            async for message in attendance:
                self._in_callers_loop(self._messages.put_nowait, message)
        except EsdError as error:
            end = error
        self._in_callers_loop(self._messages.put_nowait, end)

    def _report(self, report: Report, answer: asyncio.Future[None]) -> None:
        def answered(sent: asyncio.Future[None]) -> None:
            self._in_callers_loop(settle, answer, sent.exception())

        assert self._attendance is not None  # noqa: S101 - the block is entered
        self._attendance.report(report).add_done_callback(answered)

    def _in_callers_loop(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # that loop is closed
            self._caller.call_soon_threadsafe(function, *arguments)
