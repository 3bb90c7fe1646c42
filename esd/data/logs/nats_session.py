"""A connection to a stream of NATS JetStream, used by one thread: messages from a sequence number on."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, ServiceUnavailableError

from esd.data.log_address import LogAddress
from esd.data.logs.bounds import Bound, Number, Time
from esd.data.logs.credentials import CA_FILE, PASSWORD_FILE, SourceCredentials
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.loop_thread import LoopThread

_ANSWER_SECONDS = 10  # of the server
_GOODBYE_SECONDS = 1.0  # for the end of a connection; a client whose TLS handshake failed would wait for it for ever
_UNUSED_SECONDS = 300.0  # after which the server forgets a consumer whose reader is gone
_QUEUED_BYTES = 16 << 20  # of messages that were received and not returned
_REFUSALS = ("authorization violation", "authentication", "permissions violation")

T = TypeVar("T")
_log = logging.getLogger(__name__)


class ServerAwayError(Exception):
    """The server does not answer."""


class NoStreamError(Exception):
    """The server has no such stream, or gives no access to it; the message says why."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream, as its server tells it.

    Attributes:
        made: when the stream was made, which tells it from another one of its name.
        first: number of the oldest message; one more than `last` if there is none.
        last: number of the latest message that ever came.
        milliseconds: the server's clock.
    """

    made: str
    first: int
    last: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message.

    Attributes:
        number: its sequence number in the stream.
        milliseconds: when it came.
        value: its content.
        behind: messages of the stream behind it.
    """

    number: int
    milliseconds: int
    value: bytes
    behind: int


class StreamSession:
    """A connection, made at the first call and again after each error, and the server's consumer in it.

    The consumer is a temporary one without acknowledgements. Its place dies with it, and the reader's own counts.

    Args:
        address: of the stream.
        credentials: for its server.
    """

    def __init__(self, address: LogAddress, credentials: SourceCredentials) -> None:
        self._address = address
        self._credentials = credentials
        self._loop: LoopThread | None = None
        self._client: Client | None = None
        self._consumer: JetStreamContext.PullSubscription | None = None
        self._last_delivered = 0  # the consumer's own number of its latest message
        self._longest = 1  # bytes of a message, so far

    def state(self) -> StreamState:
        """Asks for the state of the stream.

        Raises:
            NoStreamError: it is not there.
            ServerAwayError: the server does not answer.
            InvalidArgument: the server refuses the reader.
        """
        return self._run(self._state())

    @property
    def attached(self) -> bool:
        """Whether there is a consumer."""
        return self._consumer is not None

    def fetch(self, begin: Bound, most: int, seconds: float) -> list[Delivered]:
        """Waits for messages, and returns some; none: none has come.

        Args:
            begin: where a new consumer begins; an earlier one goes on behind its last message.
            most: at most so many.
            seconds: the wait.

        Raises:
            NoStreamError, ServerAwayError, InvalidArgument: see `state`.
        """
        return self._run(self._fetch(begin, most, seconds))

    def drained(self) -> bool:
        """Asks whether the consumer has delivered all messages that there are.

        Raises:
            NoStreamError, ServerAwayError, InvalidArgument: see `state`.
        """
        return self._run(self._drained())

    def close(self) -> None:
        """Closes the connection."""
        if self._loop is not None:
            self._loop.wait_for(self._disconnect())
            self._loop.close()
            self._loop = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = LoopThread("nats")
        return self._loop.wait_for(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except (NoStreamError, InvalidArgument):
            raise
        except (NatsError, APIError, OSError, TimeoutError) as error:
            await self._disconnect()
            if isinstance(error, ssl.SSLError) or any(word in str(error).lower() for word in _REFUSALS):
                raise InvalidArgument(
                    f"{self._address}: the server and this reader refuse each other (user, {PASSWORD_FILE}, {CA_FILE} "
                    f"or the certificates): {error}"
                ) from error
            if isinstance(error, APIError) and not isinstance(error, ServiceUnavailableError):
                raise NoStreamError(str(error.description)) from error
            raise ServerAwayError(str(error) or type(error).__name__) from error

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = Client()  # kept before it connects: refused, it would stay open
            await asyncio.wait_for(self._connect(self._client), _ANSWER_SECONDS)
        return self._client

    async def _connect(self, client: Client) -> None:
        scheme = "tls" if self._address.encrypted else "nats"
        await client.connect(
            [f"{scheme}://{server}" for server in self._address.servers],
            name="esd",
            user=self._address.user or None,
            password=self._credentials.password,
            tls=_tls(self._credentials) if self._address.encrypted else None,
            allow_reconnect=False,
            connect_timeout=_ANSWER_SECONDS,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=_note,
        )

    async def _disconnect(self) -> None:
        client, self._client, self._consumer = self._client, None, None
        if client is not None:
            with suppress(NatsError, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), _GOODBYE_SECONDS)

    async def _state(self) -> StreamState:
        client = await self._connected()
        answer = await client.request(f"$JS.API.STREAM.INFO.{self._address.name}", timeout=_ANSWER_SECONDS)
        found = json.loads(answer.data)
        if "error" in found:
            raise NoStreamError(found["error"].get("description", "it cannot be read"))
        state = found["state"]
        return StreamState(found["created"], state["first_seq"], state["last_seq"], _milliseconds(found["ts"]))

    async def _fetch(self, begin: Bound, most: int, seconds: float) -> list[Delivered]:
        client = await self._connected()
        if self._consumer is None:
            self._last_delivered = 0
            self._consumer = await client.jetstream(timeout=_ANSWER_SECONDS).pull_subscribe(
                "", stream=self._address.name, config=_consumer_from(begin), pending_bytes_limit=_QUEUED_BYTES
            )
        try:
            fitting = max(1, _QUEUED_BYTES // 2 // self._longest)
            messages = await self._consumer.fetch(min(most, fitting), timeout=seconds)
        except nats.errors.TimeoutError:
            told = (await self._consumer.consumer_info()).delivered
            if told is None or told.consumer_seq != self._last_delivered:
                await self._leave()
            return []
        delivered: list[Delivered] = []
        for message in messages:
            found = message.metadata
            if found.sequence.consumer != self._last_delivered + 1:
                await self._leave()
                break
            self._last_delivered += 1
            self._longest = max(self._longest, len(message.data))
            milliseconds = int(found.timestamp.timestamp() * 1000)
            delivered.append(Delivered(found.sequence.stream, milliseconds, message.data, found.num_pending))
        return delivered

    async def _leave(self) -> None:
        """Ends the consumer, since the client has dropped messages beyond its limit; the next one begins with them."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.unsubscribe()

    async def _drained(self) -> bool:
        return self._consumer is not None and not (await self._consumer.consumer_info()).num_pending


def _consumer_from(begin: Bound) -> ConsumerConfig:
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=_UNUSED_SECONDS, mem_storage=True)
    match begin:
        case Number(number):
            config.deliver_policy, config.opt_start_seq = DeliverPolicy.BY_START_SEQUENCE, max(1, number)
        case Time(milliseconds):
            config.deliver_policy = DeliverPolicy.BY_START_TIME
            config.opt_start_time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return config


async def _note(error: Exception) -> None:
    _log.debug("nats: %r", error)  # what calls need to know they raise


def _tls(credentials: SourceCredentials) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=credentials.authorities)
    if credentials.certificate is not None:
        context.load_cert_chain(credentials.certificate, credentials.key)
    return context


def _milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)
