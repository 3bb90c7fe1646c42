"""One frame of an exchange: its message, and what has come of it."""

from __future__ import annotations

import asyncio

from esd.services.domain.errors import EsdError, Internal
from esd.services.runtime.retry import Backoff
from esd.services.wire.exchange import Stored
from esd.services.wire.frames import Answer, Arrivals, Message


class Frame:
    """A frame on its way to one parameter server, or to another worker.

    A frame that is sent again says only what is still unanswered: rows that have come may be in use by then, and are
    not written to a second time.

    Args:
        message: of the frame.
        arrivals: the rows that it asks for; None if it asks for none.

    Attributes:
        stored: done when everything that the frame pushes is durable; at once if that is nothing.
        pulled: done when every row is in its place; at once if it asks for none.
        push_bytes: of the message, what it pushes.
        pull_bytes: of the message, what asks for rows, and of the answers that have brought them.
        sent_bytes: of the message, what was sent last.
    """

    def __init__(self, message: Message, arrivals: Arrivals | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.stored: asyncio.Future[Stored] = loop.create_future()
        self.pulled: asyncio.Future[None] = loop.create_future()
        self.push_bytes = message.pulls_at if message.pushes else 0
        self.pull_bytes = 0 if arrivals is None else len(message.data) - self.push_bytes
        self._message = message
        self._arrivals = arrivals
        self.sent_bytes = 0
        self._pulls_kept_back = False  # when it was sent last
        self._backoffs: dict[type[EsdError], Backoff] = {}
        if not message.pushes:
            self.stored.set_result(Stored(0, 0))
        if arrivals is None:
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
        """The bytes of the rows that are still to come."""
        return 0 if self._arrivals is None else self._arrivals.bytes_missing

    @property
    def pushes(self) -> bool:
        """Whether something that it pushes is not known to be durable, and waited for."""
        return not self.stored.done()

    @property
    def over(self) -> bool:
        """Whether nobody waits for the frame any more: it is answered, has failed, or was given up."""
        return self.stored.done() and self.pulled.done()

    def begin(self, sequence: int, *, pulls: bool) -> bytes:
        """Returns what is still to be said, as the frame of this number, which is sent now.

        Args:
            sequence: the number.
            pulls: with what it pulls; otherwise that is to be sent when all that it pushes is durable.
        """
        message = self._message
        if self.stored.done():
            message = message.without_pushes()
        if self.pulled.done():
            message = message.without_pulls()
        elif self._arrivals is not None and pulls:
            self._arrivals.start()
        self._message = message.numbered(sequence)
        self._pulls_kept_back = not pulls and not self.pulled.done()
        sent = self._message.without_pulls() if self._pulls_kept_back else self._message
        self.sent_bytes = len(sent.data)
        return sent.data

    def acknowledge(self, new: int, already_known: int) -> None:
        """Says that what the frame pushes is durable."""
        if not self.stored.done():
            self.stored.set_result(Stored(new, already_known))

    def take_rows(self, answer: Answer) -> None:
        """Puts the rows of an answer in their places.

        Raises:
            Internal: these are not rows that the frame asks for.
        """
        if not answer.said.row_bytes or self.pulled.done():
            return  # given up, maybe
        if self._arrivals is None:
            raise Internal(f"frame {self.sequence} pulls nothing and was answered with rows")
        self._arrivals.take(answer)
        self.pull_bytes += len(answer.message)
        if not self._arrivals.missing:
            self.pulled.set_result(None)

    @property
    def goes_on(self) -> bool:
        """Whether its pulls are to be sent, now that the last answer to its pushes has come."""
        return self._pulls_kept_back and self.stored.done() and not self.pulled.done()

    def end(self) -> None:
        """Says that the last answer has come."""
        if not self.stored.done():
            self.fail(Internal("a frame was ended without storing what it pushes"))
        if not self.pulled.done() and self._arrivals is not None:
            wanted, missing = self._arrivals.wanted, self._arrivals.missing
            self.fail(Internal(f"a pull of {wanted} rows ended after {wanted - missing}"))

    def fail(self, error: EsdError) -> None:
        """Ends the frame with an error."""
        for future in (self.stored, self.pulled):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits for the other one alone is told by that

    def give_up(self) -> None:
        """Says that nobody waits for the frame any more."""
        self.stored.cancel()
        self.pulled.cancel()

    def pause(self, kind: type[EsdError], error: EsdError, patience: float) -> float:
        """Returns the seconds to wait before the frame, which was refused, is sent again.

        Raises:
            EsdError: `error`, after `patience` seconds of refusals of this kind.
        """
        return self._backoffs.setdefault(kind, Backoff(patience)).next(error)
