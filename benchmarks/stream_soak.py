"""Breaks exchanges on purpose, for long, and watches memory: `python -m benchmarks.stream_soak`.

A parameter server runs as a process of its own. Its peers let frames time out, give up waiting for them, close streams
with unanswered frames, cancel them, and lose connections. grpc.aio is known to keep some memory of every call and of
every read that is cancelled (grpc#43360), so services do neither as long as nothing is wrong; what is kept when
something is wrong must not grow in the server either, where any peer could cause it. Of a client, which opens a stream
per epoch, the growth is shown. Resident memory is looked at, so native memory counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ps import running_server
from benchmarks.soak import MOST_GROWTH, Course
from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.errors import DeadlineExceeded, Unavailable
from services.domain.frames import Parcel, Pulls
from services.domain.tables import OptimizerSpec, TableSpec
from services.runtime.channel import channel
from services.wire.frames import encode_parcel
from tests.support.cuttable_proxy import cuttable_proxy

SPEC = TableSpec("soak", 64, OptimizerSpec(), seed=0, init_scale=0.01)
_EXCHANGE = "/esd.v1.ParameterServer/Exchange"
_WARM_UP = 0.5  # of what is done: gRPC takes memory for many streams before it takes no more
_ROWS = 32
_AT_ONCE = 16  # streams
_FRAMES = 64  # of one stream
_SAMPLES = 100  # of each process over a run
_LATE_SECONDS = 2.0  # for a version that never comes
_PATIENT_SECONDS = 30.0

_IDS = np.arange(_ROWS, dtype=np.uint64)
_NEVER = np.full(_ROWS, 1 << 20)


async def _pull(client: AsyncParameterServerClient) -> None:
    """Asks for rows at a version that they will never have."""
    await client.pull(_IDS, _NEVER, np.empty((_ROWS, SPEC.row_width), np.float32), np.arange(_ROWS))


async def time_out(address: str) -> None:
    """Many frames of one stream that are refused when their time is up."""
    async with AsyncParameterServerClient(address, SPEC, timeout=_LATE_SECONDS) as client:
        ends = await asyncio.gather(*(_pull(client) for _ in range(_FRAMES)), return_exceptions=True)
        assert all(isinstance(end, DeadlineExceeded) for end in ends), ends  # noqa: S101


async def give_up(address: str) -> None:
    """Many frames of one stream that nobody waits for any more."""
    async with AsyncParameterServerClient(address, SPEC, timeout=_PATIENT_SECONDS) as client:
        pulls = [asyncio.create_task(_pull(client)) for _ in range(_FRAMES)]
        await client.describe()  # some are on their way by now
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)


async def close(address: str) -> None:
    """Streams that their clients close while frames are unanswered."""

    async def one() -> None:
        async with AsyncParameterServerClient(address, SPEC, timeout=_PATIENT_SECONDS) as client:
            pull = asyncio.create_task(_pull(client))
            await client.describe()
        with suppress(Unavailable):
            await pull

    await asyncio.gather(*(one() for _ in range(_AT_ONCE)))


async def cancel(address: str) -> None:
    """Streams that are cancelled as soon as a frame of theirs is on its way."""
    frame = encode_parcel(
        Parcel.of(pulls=Pulls(_IDS, _NEVER, np.arange(_ROWS))), SPEC, 1, epoch=0, wait_seconds=_PATIENT_SECONDS
    )
    opened = channel(address)
    try:
        for _ in range(_AT_ONCE):
            call: Any = opened.stream_stream(_EXCHANGE)()  # type: ignore[call-arg]  # wrong in the stubs only
            await call.write(frame.data)
            await call.read()  # the credit
            call.cancel()
    finally:
        await opened.close(None)


async def lose(address: str) -> None:
    """Connections that are reset while frames are unanswered; the client opens others until its patience ends."""
    async with cuttable_proxy(address) as proxy:
        clients = [AsyncParameterServerClient(proxy.address, SPEC, timeout=_PATIENT_SECONDS) for _ in range(_AT_ONCE)]
        pulls = [asyncio.create_task(_pull(client)) for client in clients]
        await asyncio.gather(*(client.describe() for client in clients))
        proxy.cut()
        ends = await asyncio.gather(*pulls, return_exceptions=True)
        assert all(isinstance(end, Unavailable) for end in ends), ends  # noqa: S101
        for client in clients:
            await client.close()


MISDEEDS: dict[str, tuple[Callable[[str], Awaitable[None]], int]] = {  # and how many each call does
    "frames time out": (time_out, _FRAMES),
    "frames are given up": (give_up, _FRAMES),
    "streams are closed": (close, _AT_ONCE),
    "streams are cancelled": (cancel, _AT_ONCE),
    "connections are lost": (lose, _AT_ONCE),
}


async def soak(count: int) -> dict[str, dict[str, Course]]:
    """Does each misdeed `count` times. Returns the courses of server and client, by misdeed, over its repetitions."""
    courses: dict[str, dict[str, Course]] = {}
    for name, (misdeed, each) in MISDEEDS.items():
        async with running_server({"ESD_PS_STORE": "memory"}) as (address, pid):
            async with AsyncParameterServerClient(address, SPEC) as client:
                await client.create_table()
            courses[name] = {"server": Course(), "client": Course()}
            step = max(each, count // _SAMPLES)
            for done in range(0, count, each):
                await misdeed(address)
                if done % step < each:
                    courses[name]["server"].sample(done, pid)
                    courses[name]["client"].sample(done, os.getpid())
    return courses


def main() -> None:
    """Prints a table, and the figures as JSON in the last line; the exit code tells whether the server stays flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3_200, help="of each misdeed")
    count: int = parser.parse_args().count
    courses = asyncio.run(soak(count))
    table = Table("misdeed", "process", "MB", "MB per 1,000", "descriptors", show_edge=False)
    figures = []
    for name, processes in courses.items():
        for process, whole in processes.items():
            course = whole.after(int(_WARM_UP * count))
            span = f"{course.megabytes[0]:.0f} to {course.megabytes[-1]:.0f}"
            descriptors = course.descriptors[0], course.descriptors[-1]
            table.add_row(name, process, span, f"{course.growth:+.3f}", f"{descriptors[0]} to {descriptors[1]}")
            figures.append({"misdeed": name, "process": process, "megabytes_per_1000": round(course.growth, 4)})
    Console(width=120).print(table)
    sys.stdout.write(json.dumps({"count": count, "figures": figures}) + "\n")
    sys.exit(
        0 if all(each["server"].after(int(_WARM_UP * count)).growth < MOST_GROWTH for each in courses.values()) else 1
    )


if __name__ == "__main__":
    main()
