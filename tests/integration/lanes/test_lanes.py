"""Lanes between real ends: bytes, errors and gRPC calls pass, also while one lane stands still."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import socket
import struct
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from esd.lanes.app import serve_lanes
from esd.lanes.blocks import END
from esd.lanes.greeting import Greeting, read_answer
from esd.lanes.settings import LanesSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime import lane_metrics as metrics
from esd.services.runtime.settings import SettingsError, load
from tests.support.lane_ends import lane_ends
from tests.support.tcp_server import tcp_server

DATA = random.Random(3).randbytes(3_000_000)
LANES = 5


class Cables:
    """Between both ends: the connections that stand still carry nothing, as when packets are lost again and again."""

    def __init__(self, far):
        self.far = far
        self.count = 0
        self.standing = {}  # by number of the connection
        self.writers = []

    def stop(self, *numbers):
        self.standing |= {number: asyncio.Event() for number in numbers}

    def go_on(self, number):
        self.standing.pop(number).set()

    async def carry(self, reader, writer):
        number, self.count = self.count, self.count + 1
        there_reader, there_writer = await asyncio.open_connection(*self.far.split(":"))
        self.writers.append(writer)
        try:
            await asyncio.gather(self.pump(number, reader, there_writer), self.pump(number, there_reader, writer))
        finally:
            there_writer.close()

    async def pump(self, number, reader, writer):
        try:
            while data := await reader.read(65536):
                if number in self.standing:
                    await self.standing[number].wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except ConnectionError:
            writer.transport.abort()


@asynccontextmanager
async def lanes_to(target, **more):
    """A near and the far end; yields the address of the near one, and the cables between them."""
    async with serve_lanes(LanesSettings(to=target)) as far:
        cables = Cables(far.address)
        async with (
            tcp_server(cables.carry) as port,
            serve_lanes(LanesSettings(via=f"127.0.0.1:{port}", lanes=LANES, **more)) as near,
        ):
            yield near.address, cables


@asynccontextmanager
async def connection(address):
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def connected(near, target):
    """A connection by a near end, and the first line of its answer."""
    async with connection(near) as (reader, writer):
        writer.write(f"CONNECT {target} HTTP/1.0\r\nHost: {target}\r\n\r\n".encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        yield reader, writer, answer.splitlines()[0]


async def answer_of(near, target):
    async with connected(near, target) as (_, _, answer):
        return answer


async def echo(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def closing(_, writer):
    writer.close()


@contextmanager
def deaf():
    """The address of a service that accepts no connection."""
    with socket.socket() as listening, ExitStack() as clients:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        clients.enter_context(socket.create_connection(listening.getsockname()))  # which the kernel keeps
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@asynccontextmanager
async def echoing():
    async with tcp_server(echo) as port:
        yield f"127.0.0.1:{port}"


async def exchanged(reader, writer, data):
    """Sends data and reads as much; the answer to it."""
    writer.write(data)
    return await reader.readexactly(len(data))


async def test_all_bytes_arrive_in_order_and_each_end_learns_of_the_end_of_the_other():
    async with (
        echoing() as target,
        lanes_to(target) as (near, cables),
        connected(near, target) as (reader, writer, answer),
    ):
        assert answer == "HTTP/1.1 200 Connection established"
        assert cables.count == LANES
        writer.write(DATA)
        writer.write_eof()
        assert await reader.read(-1) == DATA


@pytest.mark.parametrize("lane", range(LANES))
async def test_a_lane_that_stands_still_holds_nothing_up(lane):
    before = metrics.RESTORED._value.get()
    async with (
        echoing() as target,
        lanes_to(target) as (near, cables),
        connected(near, target) as (reader, writer, _),
    ):
        cables.stop(lane)
        for size in (7, 5_000, len(DATA)):
            async with asyncio.timeout(20):
                assert await exchanged(reader, writer, DATA[:size]) == DATA[:size]
        cables.go_on(lane)
        assert await exchanged(reader, writer, DATA) == DATA
    assert metrics.RESTORED._value.get() > before


async def test_two_lanes_that_stand_still_hold_up_what_needs_them():
    async with (
        echoing() as target,
        lanes_to(target) as (near, cables),
        connected(near, target) as (reader, writer, _),
    ):
        cables.stop(1, 3)
        answered = asyncio.create_task(exchanged(reader, writer, DATA))
        assert not (await asyncio.wait([answered], timeout=0.3))[0]
        cables.go_on(3)
        assert await answered == DATA


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
async def test_a_lane_that_stands_still_for_long_is_left_out_and_nothing_is_lost(order):
    before = metrics.LEFT_OUT._value.get()
    data = DATA * 20  # more than the kernel's buffers take
    async with (
        echoing() as target,
        lanes_to(target) as (near, cables),
        connected(near, target) as (reader, writer, _),
    ):
        cables.stop(0, 1, 2)
        answered = asyncio.create_task(exchanged(reader, writer, data))
        for lane in order[:2]:
            assert not (await asyncio.wait([answered], timeout=0.5))[0]
            cables.go_on(lane)
        async with asyncio.timeout(60):
            assert await answered == data
        cables.go_on(order[2])
        assert await exchanged(reader, writer, DATA) == DATA
    assert metrics.LEFT_OUT._value.get() > before


async def test_a_connection_whose_lane_breaks_ends(monkeypatch):
    monkeypatch.setattr("esd.lanes.connection._FAREWELL_SECONDS", 0.1)
    async with (
        echoing() as target,
        lanes_to(target) as (near, cables),
        connected(near, target) as (reader, writer, _),
    ):
        assert await exchanged(reader, writer, b"first") == b"first"
        cables.writers[2].transport.abort()
        with pytest.raises((EOFError, ConnectionError)):
            async with asyncio.timeout(10):
                await reader.readexactly(1)


@asynccontextmanager
async def raw_lanes(far, target, count):
    """Lanes of a connection by a far end, which has answered."""
    greeting = Greeting(secrets.token_bytes(Greeting.NAME_BYTES), count, target).encode()
    async with AsyncExitStack() as stack:
        lanes = [await stack.enter_async_context(connection(far)) for _ in range(count)]
        for _, writer in lanes:
            writer.write(greeting)
        assert [await read_answer(reader) for reader, _ in lanes] == [""] * count
        yield lanes


@asynccontextmanager
async def reading():
    """A service that only reads; yields its address, and the future of how its first connection ends."""
    end = asyncio.get_running_loop().create_future()

    async def read(reader, writer):
        try:
            end.set_result((await reader.read(-1), None))
        except ConnectionError as error:
            end.set_result((None, error))

    async with tcp_server(read) as port:
        yield f"127.0.0.1:{port}", end


async def test_a_client_that_breaks_off_has_not_ended_what_it_sent():
    async with (
        reading() as (target, end),
        lanes_to(target) as (near, cables),
        connected(near, target) as (_, writer, _),
    ):
        cables.stop(0, 1)
        writer.write(DATA[:1000])
        await writer.drain()
        end_of_client = writer.get_extra_info("socket")
        end_of_client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets it
        writer.transport.abort()
        cables.go_on(0)
        cables.go_on(1)
        async with asyncio.timeout(20):
            assert isinstance((await end)[1], ConnectionError)


@pytest.mark.parametrize("farewell", [b"", END.encode()])
async def test_lanes_that_end_without_a_farewell_have_broken(farewell):
    """The kernel ends the lanes of a near end that is killed as if all was sent."""
    async with (
        reading() as (target, end),
        serve_lanes(LanesSettings(to=target)) as far,
        raw_lanes(far.address, target, 2) as lanes,
    ):
        for _, writer in lanes:
            writer.write(farewell)
            writer.write_eof()
        data, error = await end
        assert (data, error) == (b"", None) if farewell else isinstance(error, ConnectionError)


async def test_the_reason_why_there_is_no_connection_comes_with_the_answer():
    async with echoing() as target, lanes_to(target) as (near, _):
        assert (await answer_of(near, "127.0.0.1:9")).endswith(
            f"502 127.0.0.1:9 is not among the services of the far end: {target}"
        )
    async with lanes_to(target) as (near, _):
        assert f"502 the far end does not reach {target}: " in await answer_of(near, target)
    async with serve_lanes(LanesSettings(via=target)) as near:
        assert f"502 the far end of lanes at {target} is out of reach: " in await answer_of(near.address, target)
    async with tcp_server(closing) as port, serve_lanes(LanesSettings(via=f"127.0.0.1:{port}")) as near:
        assert f"502 what listens at 127.0.0.1:{port} closes lanes: its log says why" in await answer_of(
            near.address, target
        )


async def test_silence_is_a_reason_too(monkeypatch, caplog):
    monkeypatch.setattr("esd.lanes.ends._PATIENCE_SECONDS", 0.3)
    caplog.set_level("INFO", "esd.lanes")
    with deaf() as target:
        async with lanes_to(target) as (near, cables), connection(cables.far) as (reader, _):
            assert f"502 the far end does not reach {target}: no answer" in await answer_of(near, target)
            assert await reader.read(-1) == b""
    assert "has ended: it was silent" in caplog.text


async def test_an_address_of_any_length_has_an_answer():
    async with echoing() as target, lanes_to(target) as (near, _):
        assert "is not among the services of the far end" in await answer_of(near, "a" * 1024)
        for refused in ("a" * 1025, "a" * 70_000, "\u00e4:1"):
            assert (await answer_of(near, refused)).endswith(
                "405 This proxy takes CONNECT with an address of at most 1024 bytes only"
            )


async def test_each_lane_counts_as_a_connection_while_it_is_open(monkeypatch):
    monkeypatch.setattr("esd.lanes.app._MOST_CONNECTIONS", 2 * LANES - 1)
    async with echoing() as target, lanes_to(target) as (near, _):
        async with connected(near, target) as (reader, writer, _):
            assert "502 " in await answer_of(near, target)
            assert await exchanged(reader, writer, DATA) == DATA
            writer.write_eof()
            assert await reader.read(-1) == b""
        async with connected(near, target) as (_, _, answer):
            assert answer == "HTTP/1.1 200 Connection established"


async def test_a_near_end_is_no_other_proxy():
    async with echoing() as target, lanes_to(target) as (near, _), connection(near) as (reader, writer):
        writer.write(b"GET http://example.org/ HTTP/1.1\r\n\r\n")
        assert (await reader.read(-1)).startswith(b"HTTP/1.1 405 ")


async def test_strangers_are_closed_and_disturb_nobody():
    name = bytes(Greeting.NAME_BYTES)
    greeting = Greeting(name, 2, "127.0.0.1:9").encode()
    async with serve_lanes(LanesSettings(to="127.0.0.1:1")) as far, connection(far.address) as (first, writer):
        writer.write(greeting)
        for junk in (
            b"GET / HTTP/1.1\r\n\r\n" * 9,
            Greeting(name, 3, "127.0.0.1:9").encode(),
            Greeting(name, 65, "").encode(),
        ):
            async with connection(far.address) as (reader, stranger):
                stranger.write(junk)
                assert await reader.read(-1) == b""
        async with connection(far.address) as (second, other):
            other.write(greeting)
            for lane in (first, second):
                assert b"127.0.0.1:9 is not among the services of the far end" in await lane.read(-1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_calls_of_grpc_pass(host):
    async with (
        parameter_server(ParameterServerSettings(listen=f"{host}:0", metrics_port=None)) as server,
        lanes_to(server.address) as (near, cables),
    ):
        async with grpc.aio.insecure_channel(server.address, [("grpc.http_proxy", f"http://{near}")]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
            cables.stop(0)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
            cables.go_on(0)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert cables.count == LANES


async def test_an_end_stops_without_an_error_while_connections_run(capfd):
    """Also while both sides of a connection wait for room, and while strangers have sent half a greeting."""

    async def never_reading(reader, writer):
        with suppress(ConnectionError):
            while True:
                writer.write(DATA)
                await writer.drain()

    async with echoing() as target, tcp_server(never_reading) as full, AsyncExitStack() as clients:
        services = f"{target},127.0.0.1:{full}"
        with lane_ends(services) as (near, far):
            for service in services.split(","):
                _, writer, _ = await clients.enter_async_context(connected(near["address"], service))
                writer.write(DATA * 9)
            stranger = Greeting(bytes(Greeting.NAME_BYTES), 2, target).encode()
            for end, words in ((near, b"CONNECT"), (far, b"ESD"), (far, stranger)):
                _, writer = await clients.enter_async_context(connection(end["address"]))
                writer.write(words)
            reader, writer, _ = await clients.enter_async_context(connected(near["address"], target))
            assert await exchanged(reader, writer, DATA) == DATA
    logged = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["message"] for line in logged].count("stopping on SIGTERM") == 2
    assert [line for line in logged if line["level"] != "info"] == []


@pytest.mark.parametrize("given", [{}, {"to": "127.0.0.1:1", "via": "127.0.0.1:2"}])
async def test_an_end_is_one_of_both(given):
    with pytest.raises(InvalidArgument, match=r"set either ESD_LANES_TO, .* or ESD_LANES_VIA"):
        async with serve_lanes(LanesSettings(**given)):
            pass


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"via": "127.0.0.1:1,127.0.0.1:2"}, "ESD_LANES_VIA=127.0.0.1:1,127.0.0.1:2: .*not host:port"),
        ({"via": "head..lan:1"}, "ESD_LANES_VIA=head..lan:1: .*label empty or too long"),
        ({"to": "127.0.0.1:1,,127.0.0.1:2"}, "ESD_LANES_TO=127.0.0.1:1,,127.0.0.1:2: .*'' is not host:port"),
        ({"to": "::1:5"}, "ESD_LANES_TO=::1:5: .*not host:port"),
    ],
)
def test_addresses_that_no_end_can_reach_are_refused(given, reason):
    with pytest.raises(SettingsError, match=reason):
        load(LanesSettings, **given)


def test_a_congestion_control_that_the_kernel_lacks_is_refused():
    with pytest.raises(SettingsError, match=r"ESD_LANES_CONGESTION=no-such: this kernel allows .*reno"):
        load(LanesSettings, to="127.0.0.1:1", congestion="no-such")
