"""A Redis that lies to a parameter server: a proxy before a real one twists the answers.

A lie may keep the command, or a whole transaction, from Redis. A parameter server that believes an impossible answer
therefore acknowledges rows that are not stored.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import EsdError, Internal
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.retry import repeated
from tests.support.server_client import ServerClient
from tests.support.tcp_server import tcp_server

TABLE = TableSpec("lied-about", 4, OptimizerSpec(), seed=1, init_scale=0.5)
IDS = np.arange(7, dtype=np.uint64)
_CALL_SECONDS = 60.0
_RECOVERY_SECONDS = 30.0
_AT_A_TIME = 40  # calls, after which the server gets time to recover

# Answers that no write command can have.
LIES = (
    b"$5\r\nhello\r\n", b"$0\r\n\r\n", b":-1\r\n", b"+QUEUED\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n",
    b"*1\r\n$-1\r\n", b"*2\r\n$3\r\nabc\r\n*1\r\n:1\r\n", b"*2\r\n*0\r\n$1\r\n0\r\n", b"*3\r\n:1\r\n+OK\r\n$-1\r\n",
    b"*1\r\n-ERR inside\r\n", b"*1\r\n" * 50 + b":1\r\n", b"*1\r\n*2\r\n$3\r\n1-x\r\n*1\r\n$1\r\na\r\n",
    b":9223372036854775808\r\n", b"-MOVED 1 127.0.0.1:1\r\n", b"-MOVED\r\n", b"-MOVED x y\r\n", b"-ASK 1 nowhere\r\n",
    b"-ERR no\r\n", b"-\r\n", b"-NOREPLICAS Not enough good replicas to write.\r\n",
    b"-BUSY Redis is busy running a script.\r\n", b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", b"-WRONGTYPE Operation against a key\r\n",
    b"-NOSCRIPT No matching script\r\n", b"-CLUSTERDOWN The cluster is down\r\n", b"-NOPERM no\r\n",
    b"-NOAUTH no\r\n", b"-EXECABORT no\r\n", b"-MISCONF cannot save\r\n", b"-\xff\xfe\r\n", b"$abc\r\n", b":abc\r\n",
    b":\r\n", b"*abc\r\n", b"\x00\xff\xfe\r\n", b"\r\n", b"hello\r\n",
)  # fmt: skip
_ENDLESS = (b"$99999999999\r\nhello", b"*99999999999\r\n", b"*2\r\n:1\r\n", b"$10\r\nshort\r\n")


class LyingRedis:
    """A proxy before a Redis, which lies to its clients once it is switched on.

    Args:
        rng: draws the moment and the kind of each lie.
        port: port of the real Redis at 127.0.0.1.

    Attributes:
        share: share of the commands that are answered with a lie.
        told: number of lies sent.
    """

    def __init__(self, rng: random.Random, port: int) -> None:
        self.share = 0.0
        self.told = 0
        self._rng = rng
        self._port = port

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serves while the block runs; yields its URL."""
        async with tcp_server(self._serve) as port:
            yield f"redis://127.0.0.1:{port}/0"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis, to_redis = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    commands = await _unit(reader)
                    lie, swallowed, closes = self._drawn()
                    if swallowed:
                        answers = [*_queued(len(commands)), lie]
                    else:
                        to_redis.write(b"".join(commands))
                        answers = [await _whole(redis) for _ in commands]
                        if lie:
                            at = self._rng.randrange(len(answers))
                            answers[at] = self._shortened(answers[at])
                    writer.write(b"".join(answers))
                    await writer.drain()
                    if closes:
                        return
        finally:
            to_redis.close()

    def _drawn(self) -> tuple[bytes, bool, bool]:
        """Returns a lie or nothing, whether Redis does not hear of the command, and whether the connection ends."""
        rng = self._rng
        if rng.random() >= self.share:
            return b"", False, False
        self.told += 1
        kind = rng.random()
        if kind < 0.02:  # each costs the server its patience
            return rng.choice(_ENDLESS), True, False
        if kind < 0.1:
            return rng.choice((*_ENDLESS, *LIES)), True, True
        return rng.choice(LIES), kind < 0.7, False

    def _shortened(self, answer: bytes) -> bytes:
        """Returns a text or a list that lacks its end, anything else as another answer."""
        head, _, body = answer.partition(b"\r\n")
        count = int(head[1:]) if head[:1] in b"$*" else 0
        if head[:1] == b"$" and count > 0:
            return b"$%d\r\n%s\r\n" % (count - 1, body[: count - 1])
        if head[:1] == b"*" and count > 0 and body[:1] == b"$":
            size, _, rest = body.partition(b"\r\n")
            return b"*%d\r\n%s" % (count - 1, rest[max(int(size[1:]), 0) + 2 * (size != b"$-1") :])
        return self._rng.choice(LIES)


async def _unit(reader: asyncio.StreamReader) -> list[bytes]:
    """Reads one command, or all of a transaction, which Redis runs as a whole."""
    commands = [await _whole(reader)]
    if commands[0].endswith(b"\r\nMULTI\r\n"):
        while not commands[-1].endswith(b"\r\nEXEC\r\n"):
            commands.append(await _whole(reader))
    return commands


def _queued(commands: int) -> list[bytes]:
    """Returns the answers to all commands of a unit but the last."""
    return [b"+OK\r\n", *[b"+QUEUED\r\n"] * (commands - 2)] if commands > 1 else []


async def _whole(reader: asyncio.StreamReader) -> bytes:
    """Reads one command, or one answer: texts of a length, lists of these, or a line."""
    line = await reader.readuntil(b"\r\n")
    count = int(line[1:]) if line[:1] in b"$*" else -1
    if line[:1] == b"$" and count >= 0:
        return line + await reader.readexactly(count + 2)
    if line[:1] == b"*":
        return line + b"".join([await _whole(reader) for _ in range(count)])
    return line


@dataclass
class Life:
    """The calls to a parameter server while its Redis lies, and the writes that it has acknowledged.

    Attributes:
        server: client of the parameter server.
        version: version of the rows in the last push that was begun.
        acknowledged: version of the rows in the last acknowledged push.
        epoch: epoch of the table.
        dense: the stored dense parameters; empty while they are unknown.
        uploads: number of uploads of dense parameters that have begun.
        uploading: number of uploads under way.
        answers: number of calls by the name of their error.
    """

    server: ServerClient
    version: int = 0
    acknowledged: int = 0
    epoch: int = 0
    dense: bytes = b""
    uploads: int = 0
    uploading: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def calls(self) -> list[Callable[[], Awaitable[object]]]:
        """Returns a call of every kind."""
        server, checkpoint = self.server, self.version + 1
        return [
            self.push,
            self.push_gradients,
            self.put_dense,
            self.begin_epoch,
            server.create_table,
            server.describe,
            lambda: server.look_up(IDS),
            self.scan,
            server.get_dense,
            lambda: server.forget(np.array([99], np.uint64), 2**30, epoch=self.epoch),
            lambda: server.append_samples(LogEntry(0, 2, b"samples"), epoch=self.epoch),
            lambda: server.read_samples(epoch=self.epoch),
            lambda: server.trim_samples(None, epoch=self.epoch),
            lambda: server.cut(checkpoint, 0, WorkerSet(1), epoch=self.epoch),
            lambda: server.put_part(checkpoint, "dense", b"part", epoch=self.epoch),
            lambda: server.get_part(checkpoint, "dense"),
            lambda: server.save(checkpoint, epoch=self.epoch),
            lambda: server.commit(checkpoint, b"", 1, epoch=self.epoch),
            server.get_checkpoint,
        ]

    async def push(self) -> None:
        """Pushes all rows at the next version."""
        self.version += 1
        rows = np.full((len(IDS), TABLE.row_width), self.version, np.float32)
        block = RowBlock(IDS, np.full(len(IDS), self.version), rows)
        version = self.version
        await self.server.push(Parcel(block, _gradients(version, 0)), epoch=self.epoch)
        self.acknowledged = max(self.acknowledged, version)

    async def push_gradients(self) -> None:
        """Pushes one of two contributions to rows that are never read; the second one never comes."""
        nothing = RowBlock(IDS[:0], np.empty(0, np.int64), np.empty((0, TABLE.row_width), np.float32))
        await self.server.push(Parcel(nothing, _gradients(1, 3)), epoch=self.epoch)

    async def put_dense(self) -> None:
        """Stores dense parameters that were not there before."""
        self.dense = b""  # unknown until an upload is acknowledged while no other one is under way
        self.uploads += 1
        number, alone = self.uploads, not self.uploading
        self.uploading += 1
        try:
            data = b"dense %d" % number
            await self.server.put_dense(data, epoch=self.epoch)
            if alone and number == self.uploads:
                self.dense = data
        finally:
            self.uploading -= 1

    async def begin_epoch(self) -> None:
        """Begins the next epoch."""
        self.epoch = max(self.epoch, (await self.server.get_checkpoint()).epoch)
        await self.server.begin_epoch(self.epoch + 1, takes_over=True)
        self.epoch += 1

    async def scan(self) -> None:
        """Reads everything."""
        async for _ in self.server.scan():
            pass

    async def call(self, call: Callable[[], Awaitable[object]]) -> None:
        """Makes a call. Raises AssertionError if it is answered with a defect of the server."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await call()
        except Internal as error:
            raise AssertionError("a lie of Redis is a defect of the server") from error
        except EsdError as error:
            self.answers[type(error).__name__] += 1
        else:
            self.answers["OK"] += 1

    async def check(self) -> None:
        """Raises AssertionError unless everything that was acknowledged is there."""
        versions, values = await self.server.look_up(IDS)
        assert versions.min() >= self.acknowledged, f"version {self.acknowledged} was acknowledged: {versions}"  # noqa: S101
        assert (values == versions[:, None]).all(), "a row is not as it was pushed"  # noqa: S101
        assert not self.dense or await self.server.get_dense() == self.dense, "other dense parameters"  # noqa: S101


async def live_with(liar: LyingRedis, address: str, rng: random.Random, *, calls: int, share: float) -> Life:
    """Makes all kinds of calls to a parameter server whose Redis lies, and compares the stored rows now and then.

    Raises:
        AssertionError: the server has acknowledged a write that is not stored, answers with a defect, or does not
            recover.
    """
    async with ServerClient(address, TABLE) as server:
        life = Life(server)
        await server.create_table()
        while life.answers.total() < calls:
            liar.share = share
            await asyncio.gather(*map(life.call, rng.choices(life.calls(), k=_AT_A_TIME)))
            liar.share = 0.0
            await _recovered(life)
            await life.check()
    return life


async def _recovered(life: Life) -> None:
    """Waits until the server does its work again."""

    async def work() -> None:
        await life.begin_epoch()
        await life.push()

    async with asyncio.timeout(_RECOVERY_SECONDS):
        await repeated(work, _RECOVERY_SECONDS, on=EsdError)


def _gradients(target: int, rows: int) -> GradientBlock:
    """Returns one of two contributions to a version of rows."""
    return GradientBlock(
        ids=np.arange(50, 50 + rows, dtype=np.uint64),
        targets=np.full(rows, target),
        contributors=np.full(rows, 3, np.uint64),
        steps=np.ones(rows, np.uint32),
        rates=np.ones(rows, np.float32),
        gradients=np.ones((rows, TABLE.dimension), np.float32),
        worker=0,
    )
