"""A frame in flight: its message and its result."""

from __future__ import annotations

import asyncio

from esd.services.domain.errors import EsdError, Internal
from esd.services.runtime.retry import Backoff
from esd.services.wire.exchange import Stored
from esd.services.wire.frames import Answer, FrameMessage, PulledRows


class Frame:
    """A frame in flight to one parameter server, or to another worker, over as many streams as it takes.

    When a frame is sent again, it carries its unanswered part only: rows that have arrived may already be in use, and
    must not be written a second time.

    Args:
        message: of the frame.
        rows: the pulled rows; None if the frame pulls none.

    Attributes:
        stored: done when all that the frame pushes is durable; done from the beginning if it pushes nothing.
        pulled: done when every row is in its place; done from the beginning if the frame pulls nothing.
        push_bytes: bytes of the message without its pulls; 0 if it pushes nothing.
        pull_bytes: bytes of the pulls, and of the answers with rows so far.
        sent_bytes: bytes of the message as it was sent last.
        sent_gradient_bytes: bytes of partial gradients among these.
    """

    def __init__(self, message: FrameMessage, rows: PulledRows | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.stored: asyncio.Future[Stored] = loop.create_future()
        self.pulled: asyncio.Future[None] = loop.create_future()
        self.push_bytes = message.pulls_at if message.pushes else 0
        self.pull_bytes = 0 if rows is None else len(message.data) - self.push_bytes
        self._message = message
        self._rows = rows
        self.sent_bytes = self.sent_gradient_bytes = 0
        self._pulls_kept_back = False  # whether it was sent last without its pulls
        self._backoffs: dict[type[EsdError], Backoff] = {}
        if not message.pushes:
            self.stored.set_result(Stored(0, 0))
        if rows is None:
            self.pulled.set_result(None)

    @property
    def sequence(self) -> int:
        """The number of the frame."""
        return self._message.sequence

    @property
    def size(self) -> int:
        """The bytes of the message."""
        return len(self._message.data)

    @property
    def bytes_missing(self) -> int:
        """The bytes of the rows that have not arrived."""
        return 0 if self._rows is None else self._rows.bytes_missing

    @property
    def initial_rows(self) -> int:
        """The number of pulled rows so far that were never trained, and so did not cross the link."""
        return 0 if self._rows is None else self._rows.initial

    @property
    def pushes(self) -> bool:
        """Whether a push of the frame is still to be acknowledged."""
        return not self.stored.done()

    @property
    def over(self) -> bool:
        """Whether the frame is answered, has failed or was cancelled."""
        return self.stored.done() and self.pulled.done()

    def begin(self, sequence: int, *, pulls: bool) -> bytes:
        """Encodes the unanswered part under `sequence`, and marks it as sent.

        Args:
            sequence: the number that the frame gets.
            pulls: whether the pulls are sent now; otherwise they are sent when the push is durable.
        """
        message = self._message
        if self.stored.done():
            message = message.without_pushes()
        if self.pulled.done():
            message = message.without_pulls()
        elif self._rows is not None and pulls:
            self._rows.restart()
        self._message = message.numbered(sequence)
        self._pulls_kept_back = not pulls and not self.pulled.done()
        sent = self._message.without_pulls() if self._pulls_kept_back else self._message
        self.sent_bytes, self.sent_gradient_bytes = len(sent.data), sent.gradient_bytes
        return sent.data

    def acknowledge(self, new: int, already_known: int) -> None:
        """Records that the push is durable, with the numbers of new and of repeated rows and gradients."""
        if not self.stored.done():
            self.stored.set_result(Stored(new, already_known))

    def place_rows(self, answer: Answer) -> None:
        """Copies the rows of an answer to their places.

        Raises:
            Internal: the frame pulls nothing, or the rows are not among those that it pulls.
        """
        if not answer.parts.brings_rows or self.pulled.done():
            return  # the pulls may have been cancelled
        if self._rows is None:
            raise Internal(f"frame {self.sequence} pulls nothing and was answered with rows")
        self._rows.place(answer)
        self.pull_bytes += len(answer.message)
        if not self._rows.missing:
            self.pulled.set_result(None)

    @property
    def continues(self) -> bool:
        """Whether the pulls must still be sent after the last answer to the pushes."""
        return self._pulls_kept_back and self.stored.done() and not self.pulled.done()

    def end(self) -> None:
        """Records that the last answer has arrived, and fails the parts that it leaves unanswered."""
        if not self.stored.done():
            self.fail(Internal("a frame was ended without storing what it pushes"))
        if not self.pulled.done() and self._rows is not None:
            wanted, missing = self._rows.wanted, self._rows.missing
            self.fail(Internal(f"a pull of {wanted} rows ended after {wanted - missing}"))

    def fail(self, error: EsdError) -> None:
        """Ends the frame with an error."""
        for future in (self.stored, self.pulled):
            if not future.done():
                future.set_exception(error)
                future.exception()  # a caller may wait for the other future only

    def cancel(self) -> None:
        """Cancels the frame: its caller has left."""
        self.stored.cancel()
        self.pulled.cancel()

    def pause(self, kind: type[EsdError], error: EsdError, patience: float) -> float:
        """Returns the seconds to wait before the frame, which was refused, is sent again.

        Raises:
            EsdError: `error`, if refusals of this kind have lasted for `patience` seconds.
        """
        return self._backoffs.setdefault(kind, Backoff(patience)).next(error)
