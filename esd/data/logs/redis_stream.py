"""A stream of Redis or Valkey as a log. Positions are ids of entries: `1732600000000-3`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from esd.data.log_address import LogAddress
from esd.data.logs.bounds import time_of
from esd.data.logs.credentials import CA_FILE, PASSWORD_FILE, SourceCredentials
from esd.data.logs.log import Chunk, Message, patiently
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

_AWAY = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError, redis.ReadOnlyError)
_WAIT_MILLISECONDS = 1000  # for the next entry, before the server is asked again
_ANSWER_SECONDS = 30.0  # of the server
_ID = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
_LAST_PART = 2**64 - 1

_Id = tuple[int, int]


class RedisStream:
    """A `Log` over one key.

    Raises:
        InvalidArgument: a bound is neither an entry's id nor a time, or the file of the password cannot be read.
    """

    def __init__(self, address: LogAddress) -> None:
        self._address = address
        self._first = _bound(address.first, "from")
        self._until = _bound(address.until, "until")
        self._credentials = SourceCredentials.load(encrypted=address.encrypted)

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        """See Log."""
        with self._client() as client:
            found = patiently(lambda: self._look(client), _AWAY, str(self))
        if self._until is not None and found < self._until:
            raise InvalidArgument(
                f"{self}: until {self._address.until} lies ahead of the server's clock, so entries before it may still "
                "come"
            )

    def reader(self, position: str | None) -> RedisStreamReader:
        """See Log."""
        return RedisStreamReader(self._client(), str(self), self._address.name, self._first, self._until, position)

    def _client(self) -> redis.Redis:
        host, _, port = self._address.servers[0].rpartition(":")
        return redis.Redis(
            host.strip("[]"),
            int(port),
            username=self._address.user or None,
            password=self._credentials.password,
            socket_timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),  # `patiently` does it
            ssl=self._address.encrypted,
            ssl_ca_certs=self._credentials.authorities,
            ssl_certfile=self._credentials.certificate,
            ssl_keyfile=self._credentials.key,
        )

    def _look(self, client: redis.Redis) -> _Id:
        """Returns the id that an entry would have now. Raises InvalidArgument if there is no stream, or no access."""
        try:
            state = client.xinfo_stream(self._address.name)
            seconds, microseconds = client.time()
        except redis.AuthenticationError as error:
            raise InvalidArgument(f"{self}: the server refuses user or password ({PASSWORD_FILE}): {error}") from None
        except redis.ConnectionError as error:
            if isinstance(error.__context__, ssl.SSLError):
                raise InvalidArgument(
                    f"{self}: the server and this reader refuse each other ({CA_FILE} or the certificates): {error}"
                ) from None
            raise
        except redis.ResponseError as error:
            raise InvalidArgument(f"{self}: this key cannot be read as a stream: {error}") from None
        if "entries-added" not in state:
            raise InvalidArgument(f"{self}: streams need Redis 7 or Valkey, which count what was lost")
        return seconds * 1000 + microseconds // 1000, 0


class RedisStreamReader:
    """A `LogReader` over one key.

    Between two reads a stream may be trimmed. Entries are lost to the reader if the last one that it has read is gone
    and more entries were removed than it had passed.

    Args:
        client: belongs to the reader.
        where: names the stream.
        key: its key.
        first: the first id that is read; None: any.
        until: the first id that is not read any more; None: there is no end.
        position: the id of the entry to begin with, which must be there; None: `first`.
    """

    def __init__(
        self, client: redis.Redis, where: str, key: str, first: _Id | None, until: _Id | None, position: str | None
    ) -> None:
        self._client = client
        self._where = where
        self._key = key
        self._end = "+" if until is None else f"({_written(until)}"
        self._bounded = until is not None
        self._expected = None if position is None else _parsed(position)
        self._next = self._expected or first or (0, 0)
        self._last: _Id | None = None  # read
        self._passed: int | None = None  # entries up to it that were ever added; None: unknown

    def read(self, most: int) -> Chunk | None:
        """See LogReader."""
        while True:
            entries, state = patiently(lambda: self._ask(most), _AWAY, self._where)
            self._check(entries, state)
            if entries:
                return self._chunk(entries, state, whole=len(entries) < most)
            if self._bounded:
                return None
            self._passed = state["entries-added"]
            patiently(self._wait, _AWAY, self._where)

    def close(self) -> None:
        """See LogReader."""
        self._client.close()

    def _ask(self, most: int) -> tuple[list[tuple[bytes, Mapping[bytes, bytes]]], dict[str, Any]]:
        """Reads entries and the state of the stream, at one moment."""
        try:
            with self._client.pipeline(transaction=True) as asked:
                asked.xrange(self._key, _written(self._next), self._end, most)
                asked.xinfo_stream(self._key)
                entries, state = asked.execute()
        except redis.ResponseError as error:
            if isinstance(error, _AWAY):
                raise
            raise FailedPrecondition(f"{self._where}: the stream cannot be read any more: {error}") from None
        return entries, state

    def _wait(self) -> None:
        before = (self._next[0], self._next[1] - 1) if self._next[1] else (max(0, self._next[0] - 1), _LAST_PART)
        after = before if any(self._next) else (0, 0)
        self._client.xread({self._key: _written(after)}, count=1, block=_WAIT_MILLISECONDS)

    def _check(self, entries: list[tuple[bytes, Mapping[bytes, bytes]]], state: dict[str, Any]) -> None:
        """Raises FailedPrecondition if entries that were not read are gone."""
        latest = _parsed(state["last-generated-id"].decode())
        known = self._last or self._expected
        if known is None:
            return
        if latest < known:
            raise FailedPrecondition(
                f"{self._where}: the position {_written(known)} is gone: the stream ends at {_written(latest)}, so it "
                "was made anew, or its server has lost entries"
            )
        begin = state["first-entry"]
        first = None if begin is None else _parsed(begin[0].decode())
        if self._last is None:
            if not entries or _parsed(entries[0][0].decode()) != known:
                raise FailedPrecondition(self._trimmed(known, first))
        elif first is None or first > self._last:
            removed = state["entries-added"] - state["length"]
            if latest > self._last and (self._passed is None or removed > self._passed):
                raise FailedPrecondition(self._trimmed(self._next, first))

    def _trimmed(self, position: _Id, first: _Id | None) -> str:
        begin = "it is empty" if first is None else f"it begins at {_written(first)}"
        return (
            f"{self._where}: the position {_written(position)} is gone: {begin} now, so entries that were not trained "
            "were trimmed or deleted; keep more of the stream (MAXLEN, MINID), or train on from another position: "
            "--continue-from and ?from=ID"
        )

    def _chunk(
        self, entries: list[tuple[bytes, Mapping[bytes, bytes]]], state: dict[str, Any], *, whole: bool
    ) -> Chunk:
        begin, end = entries[0][0].decode(), _parsed(entries[-1][0].decode())
        added, removed = state["entries-added"], state["entries-added"] - state["length"]
        if whole and not self._bounded:
            self._passed = added
        elif self._passed is not None:
            self._passed += len(entries)
        elif state["first-entry"][0].decode() == begin:
            self._passed = removed + len(entries)
        self._last, self._next, self._expected = end, _after(end), None
        lag = None if self._passed is None else max(0, added - self._passed)
        return Chunk(begin, [Message(name.decode(), value) for name, value in entries], lag)


def _after(entry: _Id) -> _Id:
    return (entry[0], entry[1] + 1) if entry[1] < _LAST_PART else (entry[0] + 1, 0)


def _written(entry: _Id) -> str:
    return f"{entry[0]}-{entry[1]}"


def _parsed(text: str) -> _Id:
    found = _ID.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"{text[:80]!r} is no id of an entry of a stream, such as 1732600000000-0")
    return int(found[1]), int(found[2] or 0)


def _bound(text: str, name: str) -> _Id | None:
    if not text:
        return None
    if _ID.fullmatch(text):
        return _parsed(text)
    milliseconds = time_of(text)
    if milliseconds is None:
        raise InvalidArgument(
            f"{name}={text} is neither an id of an entry, such as 1732600000000-0, nor a time, such as "
            "2026-11-20T08:00:00Z"
        )
    return milliseconds, 0
