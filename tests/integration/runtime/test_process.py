"""The frame of a service process: ready line, signals, exit codes, logs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from esd.protos.generate import ROOT
from esd.services.runtime.channel import channel

SERVE = """
from esd.services.runtime.process import announce, run
from esd.services.runtime.server import serve
from esd.services.runtime.settings import ServerSettings, load

class Settings(ServerSettings, env_prefix="ESD_TOY_"):
    pass

async def main(stop):
    async with serve("toy", [], load(Settings)) as server:
        announce("toy", server.address, server.metrics_address)
        await stop.wait()

run(main)
"""

STUBBORN = """
from esd.services.runtime.process import announce, run

async def main(stop):
    announce("stubborn", "127.0.0.1:1", None)
    await stop.wait()
    announce("stopping", "127.0.0.1:1", None)
    stop.clear()
    await stop.wait()

run(main)
"""

WAITING = """
import asyncio, os, threading
from esd.services.domain.errors import Unavailable
from esd.services.runtime.process import announce, run
from esd.services.runtime.threads import named_threads

async def main(stop):
    named_threads("waiting").submit(threading.Event().wait)
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    announce("waiting", "127.0.0.1:1", None)
    await stop.wait()
    if os.environ["FAILURE"]:
        raise Unavailable(os.environ["FAILURE"])

run(main)
"""

CALLED = """
import asyncio
import grpc
from esd.services.runtime.process import announce, run

async def wait(_request, _context):
    yield b"begun"
    await asyncio.Event().wait()

class Waiting(grpc.GenericRpcHandler):
    def service(self, _details):
        return grpc.unary_stream_rpc_method_handler(wait)

async def main(stop):
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Waiting(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce("called", f"127.0.0.1:{port}", None)
    await stop.wait()
    await server.stop(0)

run(main)
"""

DEFECT = """
from esd.services.runtime.process import run

async def main(stop):
    raise KeyError("row")

run(main)
"""


@asynccontextmanager
async def process(program: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process with its output as pipes; killed at the end if it still runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(110):
            yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def ready_line(child: asyncio.subprocess.Process) -> dict[str, Any]:
    assert child.stdout is not None
    return json.loads(await child.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_says_where_it_is_and_stops_on_a_signal(number: signal.Signals) -> None:
    async with process(SERVE) as child:
        ready = await ready_line(child)
        assert (ready["event"], ready["service"]) == ("ready", "toy")
        for address in (ready["address"], ready["metrics"]):
            host, port = address.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await writer.wait_closed()
        child.send_signal(number)
        output, errors = await child.communicate()
    assert child.returncode == 0
    assert output == b""
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["message"] for line in lines] == [
        f"toy listens on {ready['address']}",
        f"every process that reaches {ready['address']} may make every call; ESD_TOY_TLS_CLIENTS or "
        "ESD_TOY_TOKEN_FILE gives callers roles",
        f"stopping on {number.name}",
        "toy has stopped",
    ]


async def test_calls_that_the_end_of_a_server_cancels_are_no_errors() -> None:
    """gRPC ends their tasks after its server has stopped, and logs an error for a task that is cancelled before."""
    async with process(CALLED) as child:
        ready = await ready_line(child)
        async with channel(ready["address"]) as open_channel:
            calls = [open_channel.unary_stream("/called/Wait")(b"") for _ in range(6)]
            assert [await call.read() for call in calls] == [b"begun"] * 6
            child.send_signal(signal.SIGTERM)
            _, errors = await child.communicate()
            for call in calls:
                call.cancel()
    assert child.returncode == 0
    assert [json.loads(line)["message"] for line in errors.splitlines()] == ["stopping on SIGTERM"]


@pytest.mark.parametrize(("failure", "code"), [("", 0), ("a peer is lost", 1)])
async def test_a_thread_that_waits_for_others_keeps_no_process(failure: str, code: int) -> None:
    async with process(WAITING, FAILURE=failure) as child:
        await ready_line(child)
        child.send_signal(signal.SIGTERM)
        _, errors = await child.communicate()
    assert child.returncode == code
    assert errors.decode().endswith(f"error: {failure}\n" if failure else '"stopping on SIGTERM"}\n')


async def test_wrong_settings_end_with_code_2_and_all_mistakes() -> None:
    async with process(SERVE, ESD_TOY_LISTEN="nowhere", ESD_TOY_LOG_LEVEL="loud") as child:
        _, errors = await child.communicate()
    assert child.returncode == 2
    text = errors.decode()
    assert text.startswith("error: wrong settings:\n  ESD_TOY_LISTEN=nowhere: ")
    assert "\n  ESD_TOY_LOG_LEVEL=loud: " in text
    assert "Traceback" not in text


async def test_a_port_in_use_ends_with_code_1_and_one_line() -> None:
    async with process(SERVE) as first:
        address = (await ready_line(first))["address"]
        async with process(SERVE, ESD_TOY_LISTEN=address) as second:
            _, errors = await second.communicate()
    assert second.returncode == 1
    assert errors.decode().splitlines()[-1] == (
        f"error: cannot listen on {address}: Address already in use; choose another address with ESD_TOY_LISTEN"
    )
    assert b"Traceback" not in errors


async def test_a_defect_ends_with_code_1_and_a_logged_traceback() -> None:
    async with process(DEFECT) as child:
        _, errors = await child.communicate()
    assert child.returncode == 1
    log, last = errors.decode().splitlines()
    assert "KeyError: 'row'" in json.loads(log)["exception"]
    assert last == "error: defect: KeyError('row')"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 128 + signal.SIGINT)])
async def test_a_second_signal_does_not_wait(number: signal.Signals, code: int) -> None:
    async with process(STUBBORN) as child:
        await ready_line(child)
        child.send_signal(number)
        assert (await ready_line(child))["service"] == "stopping"
        child.send_signal(number)
        await child.wait()
    assert child.returncode == code
