"""Sends at least 10,000 malformed requests to real service processes: `python -m hardening.fuzz`.

The targets are a parameter server with its rows in memory, one with its rows in Redis, a dispatcher and a worker. Each
must answer every request within its deadline, with a status that blames the caller and a text that reveals no
internals, must log no defect, and must do its work afterwards.

A parameter server whose Redis lies to it must answer each call correctly or with a named error, acknowledge no write
that is not stored, and recover.

Then one of the two workers of a running job lies all the time, the workers of another job get rows from a stranger in a
worker's place, and jobs of one worker get a wrong message from their dispatcher or their parameter server. The model
must still be the model of one machine, or the job must end with the cause.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.runtime.channel import channel
from hardening.fuzz import targets
from hardening.fuzz.attended import train_beside_a_liar
from hardening.fuzz.campaign import MAX_MESSAGE_BYTES, Tally, campaign
from hardening.fuzz.delivered import train_beside_a_stranger
from hardening.fuzz.liar import Lies
from hardening.fuzz.lying_redis import Life, LyingRedis, live_with
from hardening.fuzz.targets import Target
from hardening.fuzz.told import Told, most_bytes, tell
from hardening.fuzz.wrongs import wrongs
from testbed.redis_server import redis_server

_LIMIT_SECONDS = 180.0  # for each service
_READY_SECONDS = 120.0
_LIAR_ITERATIONS = 200
_LIAR_FAILURES = 5
_STRANGER_ITERATIONS = 600
_STRANGER_FRAMES = 1200
_REDIS_CALLS = 400
_REDIS_LIES = 0.05  # share of its answers
_LIES_PER_MESSAGE = 5  # beside those that are made for the moment
_MOST_BYTES = 2**30  # of memory that a service takes
_SHARES = {"ps_server": 0.35, "ps_server on Redis": 0.2, "dispatcher": 0.4, "worker": 0.05}


async def start(stack: AsyncExitStack, module: str, log: Path, **settings: str) -> str:
    """Starts a service, whose log goes to a file, and returns its address."""
    prefix = {"ps_server": "ESD_PS_"}.get(module, f"ESD_{module.upper()}_")
    settings = {"max_request_bytes": str(MAX_MESSAGE_BYTES)} | settings
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"esd.{module}",
            env={**os.environ, **{prefix + name.upper(): value for name, value in settings.items()}},
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )  # fmt: skip

    async def end() -> None:
        if process.returncode is not None:
            raise AssertionError(f"{module} ended with exit code {process.returncode}")
        taken = most_bytes(process.pid)
        process.terminate()
        await process.wait()
        if taken > _MOST_BYTES:
            raise AssertionError(f"{module} has taken {taken} bytes of memory")

    stack.push_async_callback(end)
    assert process.stdout is not None  # noqa: S101 - started with a pipe
    async with asyncio.timeout(_READY_SECONDS):
        return str(json.loads(await process.stdout.readline())["address"])


async def targets_of(stack: AsyncExitStack, folder: Path, redis_url: str) -> list[Target]:
    """Starts all services that are fuzzed, and stops them on leaving."""
    memory = await start(stack, "ps_server", folder / "ps_server.log")
    stored = await start(stack, "ps_server", folder / "ps_server_redis.log", store=redis_url)
    dispatcher = await start(stack, "dispatcher", folder / "dispatcher.log", lease_seconds="60", join_seconds="1")
    idle = await start(stack, "dispatcher", folder / "idle.log")
    worker = await start(stack, "worker", folder / "worker.log", name="w", dispatcher=idle, link="1e9", cache_rows="64")
    client = await stack.enter_async_context(AsyncDispatcherClient(dispatcher))
    channels = [await stack.enter_async_context(channel(address)) for address in (memory, stored, worker)]
    return [
        targets.parameter_server("ps_server", memory, channels[0]),
        targets.parameter_server("ps_server on Redis", stored, channels[1]),
        targets.dispatcher(dispatcher, client),
        targets.worker(worker, channels[2]),
    ]


async def lie(folder: Path, number: int) -> Lies:
    """Lets one of two workers lie while both train. Raises AssertionError if the other one is affected."""
    lies = Lies.drawn(
        _LIES_PER_MESSAGE * 2 * _LIAR_ITERATIONS, number, per_message=_LIES_PER_MESSAGE, failures=_LIAR_FAILURES
    )
    async with AsyncExitStack() as stack:
        server = await start(stack, "ps_server", folder / "beside_liar_ps.log")
        dispatcher = await start(stack, "dispatcher", folder / "beside_liar.log")
        await train_beside_a_liar(dispatcher, server, folder, lies, iterations=_LIAR_ITERATIONS)
    return lies


async def lie_as_redis(folder: Path, port: int, number: int) -> tuple[LyingRedis, Life]:
    """Has the Redis at a port lie to a parameter server. Raises AssertionError if that believes it."""
    rng = random.Random(number)  # noqa: S311 - no secret
    liar = LyingRedis(rng, port)
    async with liar.serving() as url, AsyncExitStack() as stack:
        log = folder / "before_lying_redis.log"
        server = await start(stack, "ps_server", log, store=url, store_timeout_seconds="0.5")
        return liar, await live_with(liar, server, rng, calls=_REDIS_CALLS, share=_REDIS_LIES)


async def deliver(folder: Path, number: int) -> Counter[str]:
    """Has two workers train that get rows from a stranger, too. Raises AssertionError if they believe it."""
    async with AsyncExitStack() as stack:
        server = await start(stack, "ps_server", folder / "beside_stranger_ps.log")
        dispatcher = await start(stack, "dispatcher", folder / "beside_stranger.log")
        return await train_beside_a_stranger(
            dispatcher, server, folder, iterations=_STRANGER_ITERATIONS, count=_STRANGER_FRAMES, number=number
        )


async def tell_wrong(folder: Path, count: int, number: int) -> Told:
    """Sends jobs wrong messages. Raises AssertionError if a service crashes, hangs or reveals internals."""
    async with AsyncExitStack() as stack:
        (logs := folder / "told").mkdir()
        server = await start(stack, "ps_server", logs / "ps_server", max_tables=str(count + 1))
        dispatcher = await start(stack, "dispatcher", logs / "dispatcher", lease_seconds="2")
        return await tell(dispatcher, server, logs, wrongs(count, number))


def defects(folder: Path) -> list[str]:
    """Returns the logged errors of services that only a defect of theirs explains."""
    lines = [line for log in folder.glob("*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if "internal error" in line or "defect" in line or "Traceback" in line]


def main() -> None:
    """Prints a table of the answers; the exit code tells whether all were right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=300, help="that are told something wrong")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    table = Table("service", "method", "requests", "answers", show_edge=False)
    progress = Console(stderr=True)
    sent, began = 0, time.monotonic()
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="esd-fuzz-")))
        redis = resources.enter_context(redis_server(folder))
        runner = resources.enter_context(asyncio.Runner())
        stack = AsyncExitStack()
        try:
            for target in runner.run(targets_of(stack, folder, redis.url)):
                count = round(1.02 * arguments.requests * _SHARES[target.name])
                until = time.monotonic() + _LIMIT_SECONDS
                tally = campaign(runner, target, count=count, number=arguments.seed, until=until)
                _report(table, target.name, tally)
                sent += tally.sent
                progress.print(f"{target.name}: {tally.sent} requests after {time.monotonic() - began:.0f} s")
        finally:
            runner.run(stack.aclose())
        liar, life = runner.run(lie_as_redis(folder, redis.port, arguments.seed))
        progress.print(f"{liar.told} lies of Redis after {time.monotonic() - began:.0f} s")
        lies = runner.run(lie(folder, arguments.seed))
        progress.print(f"{lies.told} lies after {time.monotonic() - began:.0f} s")
        delivered = runner.run(deliver(folder, arguments.seed))
        progress.print(f"{delivered.total()} frames of rows after {time.monotonic() - began:.0f} s")
        told = runner.run(tell_wrong(folder, arguments.jobs, arguments.seed))
        found = defects(folder)
    console = Console(width=150)
    console.print(table)
    console.print(f"{liar.told} lies of a Redis to its parameter server: {_counted(life.answers)}")
    console.print(
        f"{lies.told} lies beside a job of two workers: {_counted(lies.refusals)}, others were nothing to refuse"
    )
    console.print(f"{delivered.total()} frames beside a job whose workers send each other rows: {_counted(delivered)}")
    console.print(f"{arguments.jobs} jobs told something wrong, and one that was not: {_counted(told.outcomes)}")
    console.print(f"{sent} requests in {time.monotonic() - began:.0f} s (seed {arguments.seed})")
    for line in found:
        console.print(f"logged: {line}", markup=False)
    sys.exit(0 if sent >= arguments.requests and not found else 1)


def _report(table: Table, name: str, tally: Tally) -> None:
    for method in sorted({method for method, _ in tally.answers}):
        answers = Counter({code: count for (of, code), count in tally.answers.items() if of == method})
        table.add_row(name, method, str(answers.total()), _counted(answers))


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
