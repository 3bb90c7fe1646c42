"""The connection to one parameter server, which the clients of its tables share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol, Self, TypeVar

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.clients.exchange import Exchange
from esd.services.clients.traffic import Traffic
from esd.services.domain.claimants import new_claimant
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.tables import TableSpec
from esd.services.runtime.answers import ReadableAnswers
from esd.services.runtime.channel import channel
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from esd.services.runtime.status import Requests, domain_errors
from esd.services.wire.tables import encode_table

_EXCHANGE = "/esd.v1.ParameterServer/Exchange"


class _Chunk(Protocol):
    @property
    def data(self) -> bytes: ...


C = TypeVar("C", bound=_Chunk)


class ParameterServerConnection:
    """A connection to one parameter server, in the event loop in which it was made.

        async with ParameterServerConnection("127.0.0.1:50051") as server:
            await server.create_table(table)
            versions, values = await TableClient([server], table).look_up(ids)

    Three clients make the calls about a table: `RowClient` (esd.services.clients.rows), `CheckpointClient`
    (checkpoints.py) and `TableClient` (tables.py). Every call may be repeated after any result of the first attempt;
    `esd.services.runtime.retry.repeated` does so while a server is away. All calls raise the errors of
    `esd.errors`: Unavailable when the server or its store cannot be reached, NotFound when the table does not exist,
    DeadlineExceeded when the answer is late, StaleEpoch when `epoch` is not the table's epoch.

    Args:
        address: `host:port`.
        timeout: seconds that a call may take, in addition to the time in which `traffic` moves its bytes.
        traffic: the link that messages with rows, dense parameters and parts pass; None: one without a limit.
        max_message_bytes: upper bound on a message, sent or received; give the server the same.
        credentials: for a server that uses TLS or asks for a token.
        caller: a name for the server's log.
        patience: by class of error, the seconds for which refused pulls and pushes are sent again; None: 0.
        listed: the shard number under which the job lists the server, from 0, and the number of its servers; None: the
            server does not compare them.

    Attributes:
        channel: the channel, which `close` closes.
        stub: the calls of the contract (protos/ps.proto).
        exchange: the stream of pulls and pushes, which all tables share.
        traffic: as above.
        timeout: as above.
        claimant: identifies this connection as one dispatcher where it begins epochs.
        max_dense_bytes: the most bytes of dense parameters that the server stores; known when a table is created.

    Example:
        >>> table = esd.TableSpec("items", dimension=16, optimizer=esd.OptimizerSpec(), seed=0, init_scale=0.01)
        >>> async def create():
        ...     async with esd.ParameterServerConnection("127.0.0.1:50052") as server:
        ...         return await server.create_table(table)
        >>> asyncio.run(create())
        True
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 60.0,
        traffic: Traffic | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        credentials: Credentials = PLAINTEXT,
        caller: str = "",
        patience: Mapping[type[EsdError], float] | None = None,
        listed: tuple[int, int] | None = None,
    ) -> None:
        self.timeout = timeout
        self.traffic = traffic or Traffic()
        self.claimant = new_claimant()
        self.max_dense_bytes = 0
        self._listed = listed or (0, 0)
        self.channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self.stub: Any = ps_pb2_grpc.ParameterServerStub(ReadableAnswers(self.channel))  # type: ignore[no-untyped-call]
        stream: Any = self.channel.stream_stream(_EXCHANGE, None, None)  # messages are bytes
        name = f"the parameter server at {address}"
        self.exchange = Exchange(stream, self.traffic, timeout, patience or {Unavailable: 0.0}, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the stream and the channel."""
        await self.exchange.close()
        await self.channel.close(None)

    async def create_table(self, table: TableSpec, *, to_train: bool = False, claimant: bytes = b"") -> bool:
        """Creates a table unless it exists.

        Args:
            table: the table.
            to_train: whether the caller will train it.
            claimant: claims the table for a job that begins no epochs; empty: the table is not claimed.

        Returns:
            Whether this call has created it.

        Raises:
            FailedPrecondition: the table exists with another specification; `to_train` is set and the table's job has
                ended; another job holds the table; or the server's shard number differs from the job's list.
        """
        shard, shards = self._listed
        request = ps_pb2.CreateTableRequest(
            table=encode_table(table), to_train=to_train, shard=shard, shards=shards, claimant=claimant
        )
        with domain_errors():
            answer = await self.stub.CreateTable(request, timeout=self.timeout)
        self.max_dense_bytes = int(answer.max_dense_bytes)
        return bool(answer.created)

    async def describe(self) -> ps_pb2.DescribeServerResponse:
        """Returns the state of the server and all its tables, as the contract has it."""
        with domain_errors():
            described: ps_pb2.DescribeServerResponse = await self.stub.DescribeServer(
                ps_pb2.DescribeServerRequest(), timeout=self.timeout
            )
            return described

    async def upload(self, rpc: Any, chunks: Iterable[C], size: int) -> int:
        """Sends chunks of `size` bytes in all, and returns the bytes that the server has stored."""

        async def paced() -> AsyncIterator[C]:
            for chunk in chunks:
                await self.traffic.send(len(chunk.data))
                self.traffic.sent(other=len(chunk.data))
                yield chunk

        requests = Requests(paced())
        with domain_errors(requests):
            return int((await rpc(requests, timeout=self.traffic.deadline(size, self.timeout))).bytes)

    async def download(self, chunks: Any) -> bytes:
        """Receives the chunks of one call, and returns them joined."""
        data = bytearray()
        with domain_errors():
            async for chunk in chunks:
                await self.traffic.receive(len(chunk.data))
                self.traffic.received(other=len(chunk.data))
                data += chunk.data
        return bytes(data)
