"""The cost matrices of HybridDis calls: read message by message, within the bytes that all calls may hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from esd.dispatcher.service.settings import DispatcherSettings
from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument, Overloaded, ResourceExhausted
from esd.services.domain.hybrid import HybridProblem
from esd.services.wire.hybrid import JoinedProblem


class HybridCalls:
    """The calls whose costs this dispatcher holds.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: DispatcherSettings) -> None:
        self._most = settings.max_costs_bytes
        self._knob = settings.variable("max_costs_bytes")
        self._answer = settings.max_message_bytes
        self._answer_knob = settings.variable("max_message_bytes")
        self._held = 0

    @contextmanager
    def place(self) -> Iterator[HybridCall]:
        """Yields a call, whose bytes are given back at the end of the block."""
        call = HybridCall(self)
        try:
            yield call
        finally:
            self._held -= call.held

    def admit(self, joined: JoinedProblem) -> None:
        """Checks the size of a problem before its costs are read.

        Raises:
            ResourceExhausted: the costs or the answer would be longer than this dispatcher allows.
        """
        if joined.costs_bytes > self._most:
            raise ResourceExhausted(
                f"the costs have {joined.costs_bytes} bytes, and the limit is {self._knob}={self._most}"
            )
        if joined.answer_bytes > self._answer:
            raise ResourceExhausted(
                f"the answer may have {joined.answer_bytes} bytes, and the limit is {self._answer_knob}={self._answer}"
            )

    def take(self, size: int) -> None:
        """Takes bytes for costs that have come. Raises Overloaded if the other calls leave too few."""
        if self._held + size > self._most:
            raise Overloaded(
                f"the costs of HybridDis calls have {self._held} bytes, and {size} more have come; the limit is "
                f"{self._knob}={self._most}"
            )
        self._held += size


class HybridCall:
    """One call.

    Attributes:
        held: the bytes of its costs that have come.
    """

    def __init__(self, calls: HybridCalls) -> None:
        self.held = 0
        self._calls = calls

    async def read(self, messages: AsyncIterator[pb.HybridDisRequest]) -> HybridProblem:
        """Reads the messages of the call.

        Raises:
            InvalidArgument: there is no message, or the messages make no problem.
            ResourceExhausted: the problem is larger than this dispatcher allows.
            Overloaded: other calls leave too little room.
        """
        joined: JoinedProblem | None = None
        async for message in messages:
            if joined is None:
                joined = JoinedProblem(message)
                self._calls.admit(joined)
            size = joined.add(message)
            self._calls.take(size)
            self.held += size
        if joined is None:
            raise InvalidArgument("the call has no message")
        return joined.problem()
