"""The two ends of lanes: the proxy beside the workers, and the end beside the services."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from esd.lanes.blocks import MalformedBlock
from esd.lanes.connection import Carrier, Stream
from esd.lanes.greeting import Greeting, encode_answer, read_answer
from esd.services.domain.errors import Unavailable
from esd.services.runtime.settings import split_address
from esd.services.runtime.tasks import all_of

_PATIENCE_SECONDS = 10.0  # for a connection to be opened, and for its first bytes
_REQUEST = re.compile(rb"CONNECT ([!-~]{1,%d}) HTTP/1\.[01]\r\n" % Greeting.LONGEST_TARGET)  # of gRPC to an HTTP proxy


class NearEnd:
    """The end beside the workers: an HTTP proxy for gRPC.

    Args:
        via: `host:port` of the far end.
        lanes: for each connection.
    """

    def __init__(self, via: str, lanes: int) -> None:
        self._via = via
        self._lanes = lanes

    async def attend(self, stream: Stream) -> None:
        """Carries a connection until it ends.

        Raises:
            MalformedBlock: it is none to a proxy.
            Unavailable: the far end is out of reach, or has not reached the target. The client has the reason, too.
            OSError, EOFError: the connection broke.
        """
        async with asyncio.timeout(_PATIENCE_SECONDS):
            request = _REQUEST.match(await stream.reader.readuntil(b"\r\n\r\n"))
        if request is None:
            wanted = f"CONNECT with an address of at most {Greeting.LONGEST_TARGET} bytes"
            stream.writer.write(f"HTTP/1.1 405 This proxy takes {wanted} only\r\n\r\n".encode())
            raise MalformedBlock(f"a client has not sent {wanted}")
        lanes: list[Stream] = []
        try:
            await self._open(request[1].decode(), lanes)
            stream.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await Carrier(stream, lanes).carry()
        except Unavailable as error:
            stream.writer.write(f"HTTP/1.1 502 {error}\r\n\r\n".encode())
            raise
        finally:
            await asyncio.gather(*(lane.abort() for lane in lanes))

    async def _open(self, target: str, lanes: list[Stream]) -> None:
        """Opens lanes, and waits until the far end has reached the target."""
        greeting = Greeting(secrets.token_bytes(Greeting.NAME_BYTES), self._lanes, target)
        try:
            async with asyncio.timeout(3 * _PATIENCE_SECONDS):  # the far end waits, too
                answers = await all_of(self._opened(greeting, lanes) for _ in range(self._lanes))
        except TimeoutError:
            raise Unavailable(f"the far end of lanes at {self._via} does not answer") from None
        except (EOFError, ConnectionResetError) as error:
            raise Unavailable(
                f"what listens at {self._via} closes lanes: its log says why if it is a far end of this release"
            ) from error
        except OSError as error:
            raise Unavailable(f"the far end of lanes at {self._via} is out of reach: {error}") from error
        if answers[0]:
            raise Unavailable(answers[0])

    async def _opened(self, greeting: Greeting, lanes: list[Stream]) -> str:
        """Opens a lane, and returns the far end's answer."""
        lane = await connected(self._via)
        lanes.append(lane)
        lane.become_lane()
        lane.writer.write(greeting.encode())
        return await read_answer(lane.reader)


@dataclass(slots=True)
class _Gathering:
    """The lanes of a connection that have come.

    Attributes:
        greeting: of all of them.
        lanes: those.
        complete: is set when all have come.
        ended: is set when they are closed.
    """

    greeting: Greeting
    lanes: list[Stream] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FarEnd:
    """The end beside the services: opens the connections of its near ends there.

    Args:
        targets: `host:port` of each service that connections may reach.
    """

    def __init__(self, targets: Collection[str]) -> None:
        self._targets = targets
        self._gathering: dict[bytes, _Gathering] = {}

    async def attend(self, stream: Stream) -> None:
        """Takes a lane, and returns when its connection has ended, which it carries if it is the first lane.

        Raises:
            MalformedBlock: it is none.
            Unavailable: the target is not reached, or lanes are missing. The near end has the reason, too.
            OSError, EOFError: the connection broke.
        """
        async with asyncio.timeout(_PATIENCE_SECONDS):
            greeting = await Greeting.read(stream.reader)
        stream.become_lane()
        gathering = self._gathering.setdefault(greeting.connection, _Gathering(greeting))
        if gathering.greeting != greeting:
            raise MalformedBlock("two lanes of a connection have different greetings")
        gathering.lanes.append(stream)
        if len(gathering.lanes) == greeting.lanes:
            del self._gathering[greeting.connection]
            gathering.complete.set()
        if gathering.lanes[0] is stream:
            await self._carry(gathering)
        else:
            await gathering.ended.wait()

    async def _carry(self, gathering: _Gathering) -> None:
        lanes = gathering.lanes
        try:
            service = await self._reach(gathering)
            for lane in lanes:
                lane.writer.write(encode_answer(""))
            await Carrier(service, lanes).carry()
        except Unavailable as error:
            for lane in lanes:
                lane.writer.write(encode_answer(str(error)))
            await asyncio.gather(*(lane.close() for lane in lanes))
            raise
        finally:
            await asyncio.gather(*(lane.abort() for lane in lanes))
            gathering.ended.set()

    async def _reach(self, gathering: _Gathering) -> Stream:
        """Returns a connection to the target, when all lanes have come."""
        target, lanes = gathering.greeting.target, gathering.greeting.lanes
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await gathering.complete.wait()
        except TimeoutError:
            self._gathering.pop(gathering.greeting.connection, None)
            raise Unavailable(f"{len(gathering.lanes)} of {lanes} lanes have come") from None
        if target not in self._targets:
            raise Unavailable(f"{target} is not among the services of the far end: {', '.join(sorted(self._targets))}")
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await connected(target)
        except OSError as error:  # TimeoutError is one
            raise Unavailable(f"the far end does not reach {target}: {str(error) or 'no answer'}") from error


async def connected(address: str) -> Stream:
    """Opens a connection to `host:port`."""
    return Stream(*await asyncio.open_connection(*split_address(address), limit=Stream.LIMIT))
