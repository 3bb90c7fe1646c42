"""A stream of NATS JetStream as a log. Positions are sequence numbers, and the time at which the stream was made."""

from __future__ import annotations

import re
from contextlib import closing

from esd.data.log_address import LogAddress
from esd.data.logs.bounds import Bound, Number, Time, parse_bound
from esd.data.logs.credentials import SourceCredentials
from esd.data.logs.log import Chunk, Message, patiently
from esd.data.logs.nats_session import Delivered, NoStreamError, ServerAwayError, StreamSession, StreamState
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

_WAIT_SECONDS = 1.0  # for the next message, before the server is asked whether it is there
_POSITION = re.compile(r"(\d{1,20})@(\d{8,40})")


class NatsStream:
    """A `Log` over a stream.

    Raises:
        InvalidArgument: a bound is neither a sequence number nor a time, or a file of the credentials cannot be read.
    """

    def __init__(self, address: LogAddress) -> None:
        self._address = address
        self._first = parse_bound(address.first, "from", "a sequence number") or Number(1)
        self._until = parse_bound(address.until, "until", "a sequence number")
        self._credentials = SourceCredentials.load(encrypted=address.encrypted)

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        """See Log."""
        with closing(self._session()) as session:
            try:
                state = patiently(session.state, (ServerAwayError,), str(self))
            except NoStreamError as error:
                raise InvalidArgument(f"{self}: this stream cannot be read: {error}") from None
        match self._until:
            case Number(number) if number > state.last + 1:
                raise InvalidArgument(f"{self}: until={number} lies ahead of the stream's end, {state.last + 1}")
            case Time(milliseconds) if milliseconds > state.milliseconds:
                raise InvalidArgument(
                    f"{self}: until {self._address.until} lies ahead of the server's clock, so messages before it may "
                    "still come"
                )

    def reader(self, position: str | None) -> NatsReader:
        """See Log."""
        return NatsReader(self._session(), str(self), self._first, self._until, position)

    def _session(self) -> StreamSession:
        return StreamSession(self._address, self._credentials)


class NatsReader:
    """A `LogReader` over a stream.

    Messages are lost to the reader if the stream begins behind the next one; single ones that were deleted further
    behind are left out.

    Args:
        session: belongs to the reader.
        where: names the stream.
        first: the first message that is read.
        until: the first one that is not read any more; None: there is no end.
        position: the message to begin with, which must be there; None: `first`.
    """

    def __init__(
        self, session: StreamSession, where: str, first: Bound, until: Bound | None, position: str | None
    ) -> None:
        self._session = session
        self._where = where
        self._begin = first
        self._until = until
        self._expected: int | None = None
        self._next: int | None = None  # after the first read
        self._made: str | None = None
        if position is not None:
            found = _POSITION.fullmatch(position)
            if found is None:
                raise InvalidArgument(f"{position[:80]!r} is no position in a stream, such as 1200@20261127091858")
            self._expected = self._next = int(found[1])
            self._begin, self._made = Number(int(found[1])), found[2]

    def read(self, most: int) -> Chunk | None:
        """See LogReader."""
        while True:
            try:
                messages, ended = patiently(lambda: self._ask(most), (ServerAwayError,), self._where)
            except NoStreamError as error:
                raise FailedPrecondition(f"{self._where}: the stream cannot be read any more: {error}") from None
            inside = [each for each in messages if not self._is_beyond(each)]
            if inside:
                return self._chunk(inside, inside[-1].behind)
            if messages or ended:
                return None

    def close(self) -> None:
        """See LogReader."""
        self._session.close()

    def _ask(self, most: int) -> tuple[list[Delivered], bool]:
        """Returns messages, and whether the reader has all up to its bound."""
        attached = self._session.attached
        messages = self._session.fetch(self._begin, most, _WAIT_SECONDS)
        gap = self._gap(messages)
        if not attached or not messages or gap is not None:
            self._check(self._session.state(), gap)
        if self._expected is not None and messages and messages[0].number != self._expected:
            raise FailedPrecondition(self._gone(self._expected, "it was deleted"))
        ended = self._until is not None and not messages and self._session.drained()
        return messages, ended

    def _gap(self, messages: list[Delivered]) -> int | None:
        """Returns the number of the first message that is missing; None: there is none."""
        due = self._next
        for message in messages:
            if due is not None and message.number != due:
                return due
            due = message.number + 1
        return None

    def _check(self, state: StreamState, gap: int | None) -> None:
        """Raises FailedPrecondition if messages that were not read are gone."""
        due = self._next if gap is None else gap
        made = re.sub(r"\D", "", state.made)
        if self._made is None:
            self._made = made
        if due is None:
            return
        if made != self._made:
            raise FailedPrecondition(self._gone(due, f"the stream was made anew, at {state.made}"))
        if state.last < due - 1:
            raise FailedPrecondition(
                self._gone(due, f"the stream ends at {state.last}, so its server has lost messages")
            )
        if state.first > due:
            raise FailedPrecondition(
                self._gone(
                    due,
                    f"the stream begins at {state.first} now, so messages that were not trained were deleted; keep "
                    "more of it (max_age, max_bytes, max_msgs)",
                )
            )

    def _gone(self, number: int, found: str) -> str:
        return (
            f"{self._where}: the position {number} is gone: {found}; to train on from another position: "
            "--continue-from and ?from=NUMBER"
        )

    def _is_beyond(self, message: Delivered) -> bool:
        match self._until:
            case Number(number):
                return message.number >= number
            case Time(milliseconds):
                return message.milliseconds >= milliseconds
        return False

    def _chunk(self, messages: list[Delivered], behind: int) -> Chunk:
        self._expected, self._next = None, messages[-1].number + 1
        self._begin = Number(self._next)
        position = f"{messages[0].number}@{self._made}"
        return Chunk(position, [Message(str(each.number), each.value) for each in messages], behind)
