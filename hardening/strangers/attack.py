"""One attack on one port, as a process of its own: `python -m hardening.strangers.attack HOST:PORT KIND SECONDS`.

Kinds: `silent` connections say nothing; `noise` is random bytes; `tls` is an HTTP/2 preface with random frames after a
TLS handshake without a certificate; `calls` are calls of 1 MiB without a token; `health` opens watches, which need
none; `http` is a request whose headers never end. Prints how many connections were open at most, and the bytes sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

CONNECTIONS = 1024
BYTES_PER_SECOND = 100e6
_BLOCK = 2**16
_PAUSE_SECONDS = 0.05  # before a connection that was closed is opened again
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
_REQUEST = b"GET /metrics HTTP/1.1\r\n"
_CALLS_BY_CHANNEL = 16


@dataclass
class Attack:
    """The state that all connections of an attack share."""

    host: str
    port: int
    kind: str
    until: float
    open: int = 0
    most_open: int = 0
    sent: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._promised = 0
        self._tls = _anybody() if self.kind == "tls" else None
        self._noise = random.Random(0).randbytes(_BLOCK)  # noqa: S311 - no secret

    @property
    def over(self) -> bool:
        """Whether its time is up."""
        return time.monotonic() > self.until

    async def paced(self, size: int) -> None:
        """Waits until so many bytes more may be sent, and counts them."""
        self._promised += size
        ahead = self._promised / BYTES_PER_SECOND - (time.monotonic() - self._began)
        await asyncio.sleep(max(0.0, ahead))
        self.sent += size

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts an open connection or call."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            yield
        finally:
            self.open -= 1

    async def connection(self) -> None:
        """Keeps one connection open, and opens it again whenever it is closed."""
        while not self.over:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self._tls)
                try:
                    with self.counted():
                        await asyncio.gather(self._say(writer), self._hear(reader))
                finally:
                    writer.transport.abort()
            self.refused += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _say(self, writer: asyncio.StreamWriter) -> None:
        """Sends the bytes of this kind of attack. It ends with an error when they end, or when the peer has gone."""
        first = {"tls": _PREFACE, "http": _REQUEST}.get(self.kind, b"")
        writer.write(first)
        while not self.over:
            if self.kind == "silent":
                await asyncio.sleep(1)
                continue
            block = b"X-Header: " + b"x" * 1000 + b"\r\n" if self.kind == "http" else self._block()
            await self.paced(len(block))
            writer.write(block)
            await writer.drain()
        raise TimeoutError

    def _block(self) -> bytes:
        if self.kind != "tls":
            return self._noise
        header = (2**14).to_bytes(3, "big") + bytes((random.randrange(10), random.randrange(256)))  # noqa: S311
        return header + random.randrange(2**31).to_bytes(4, "big") + self._noise[: 2**14]  # noqa: S311

    @staticmethod
    async def _hear(reader: asyncio.StreamReader) -> None:
        while await reader.read(_BLOCK):
            pass
        raise ConnectionResetError

    async def channel(self, authority: bytes) -> None:
        """Makes calls over a connection of its own, each again when it has ended."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        credentials = grpc.ssl_channel_credentials(authority)
        async with grpc.aio.secure_channel(f"localhost:{self.port}", credentials, options=options) as opened:
            await asyncio.gather(*(self._call(opened) for _ in range(_CALLS_BY_CHANNEL)))

    async def _call(self, opened: grpc.aio.Channel) -> None:
        # All services have it.
        ask = opened.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", bytes, bytes)
        watch = health_pb2_grpc.HealthStub(opened).Watch
        while not self.over:
            with self.counted(), contextlib.suppress(grpc.aio.AioRpcError):
                left = max(0.1, self.until - time.monotonic())
                if self.kind == "health":
                    async for _ in watch(health_pb2.HealthCheckRequest(), timeout=left):
                        pass
                else:
                    await self.paced(2**20)
                    await ask(bytes(2**20), timeout=left)
            self.refused += 1
            await asyncio.sleep(_PAUSE_SECONDS)


def _anybody() -> ssl.SSLContext:
    """A client that trusts every server and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def attack(address: str, kind: str, seconds: float, authority: bytes) -> Attack:
    """Attacks for so long."""
    host, _, port = address.rpartition(":")
    attacker = Attack(host, int(port), kind, time.monotonic() + seconds)
    if kind in ("calls", "health"):
        tasks = [attacker.channel(authority) for _ in range(CONNECTIONS // _CALLS_BY_CHANNEL)]
    else:
        tasks = [attacker.connection() for _ in range(CONNECTIONS)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + 5):
            await asyncio.gather(*tasks)
    return attacker


def main() -> None:
    """Prints one JSON object."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    address, kind, seconds, authority = sys.argv[1:]
    done = asyncio.run(attack(address, kind, float(seconds), Path(authority).read_bytes()))
    print(json.dumps({"connections": done.most_open, "megabytes": done.sent / 1e6, "again": done.refused}))


if __name__ == "__main__":
    main()
