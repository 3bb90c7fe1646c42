"""Disturbs real runs at random moments, and compares each run's model with an undisturbed one: `make chaos`.

Every run trains the same stream on a cluster of local processes. Once, at an iteration drawn from the seed, a process
is killed (`kill -9`), frozen, or cut off from others. The run must end by itself, every sample trained exactly once and
no checkpoint lost that was told of, with the undisturbed run's model, loss and AUC: bit by bit, or nearly so
(MODEL_TOLERANCE, TOLERANCE) if a worker has not come back and so others have trained its samples. That rows have the
same versions says that each was trained as often as it should be.

With --bad-days two or three things happen to each run, among them hangs of 5 to 75 s, full disks and a second start of
the same command. A run may then be refused with an error that names the cause, and is repeated.

With --ways the bad days take turns over the ways to synchronise and to sum dense gradients, several tables, epochs,
evaluations and continued models, so that each way meets each kind of misfortune, also while the stream pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hardening.chaos import bad_days, faults
from hardening.chaos.bad_days import BadDay, draw_bad_days
from hardening.chaos.faults import Fault, draw_faults
from hardening.chaos.verdict import Undisturbed
from hardening.chaos.ways import draw_ways
from testbed.redis_server import RedisServer, redis_server

LIMIT_SECONDS = 15 * 60  # of `make chaos`
SIDE_BY_SIDE = 2

_progress = Console(stderr=True, width=200)


@dataclass
class Campaign:
    """Runs that a campaign makes side by side.

    Attributes:
        folder: the folder of all their files.
        undisturbed: the runs for comparison.
        runs: the runs that have not begun, by number.
        table: the runs so far.
        until: time after which no run begins, in seconds of the monotonic clock.
        good: number of runs that ended well.
    """

    folder: Path
    undisturbed: Undisturbed
    runs: deque[tuple[int, Fault | BadDay]]
    table: Table
    until: float
    good: int = 0

    async def work(self, redis: RedisServer) -> None:
        """Runs one after the other, until there are no more or the time is up."""
        while self.runs and time.monotonic() < self.until:
            number, each = self.runs.popleft()
            place = self.folder / str(number)
            place.mkdir()
            began = time.monotonic()
            ended_well, cells = await each.run(redis, place, self.undisturbed)
            self.good += ended_well
            row = (str(number), *cells, f"{time.monotonic() - began:.1f}")
            self.table.add_row(*row)
            _progress.print(" | ".join(row), markup=False, highlight=False, soft_wrap=True)


async def campaign(
    folder: Path, servers: Sequence[RedisServer], runs: Sequence[tuple[int, Fault | BadDay]], table: Table, limit: float
) -> int:
    """Runs everything; how many runs ended well."""
    todo = Campaign(folder, Undisturbed(folder), deque(runs), table, time.monotonic() + limit)
    async with asyncio.TaskGroup() as tasks:
        for redis in servers:
            tasks.create_task(todo.work(redis))
    return todo.good


def main() -> None:
    """Prints a table; the exit code tells whether all runs ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--bad-days", action="store_true", help="two or three things happen to each run")
    kind.add_argument("--ways", action="store_true", help="the same, over the ways to synchronise")
    parser.add_argument("--runs", type=int, help="30, of bad days 60, over the ways 100")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the runs to do, of those that the seed gives")
    parser.add_argument("--side-by-side", type=int, default=SIDE_BY_SIDE, help="how many runs go on at a time")
    parser.add_argument("--out", type=Path, help="a new folder for logs and models, which otherwise go with the runs")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)  # noqa: S311 - no secret
    began = time.monotonic()
    with ExitStack() as stack:
        folder = arguments.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esd-chaos-")))
        folder.mkdir(exist_ok=True)
        drawn: list[Fault | BadDay] = []
        table, limit = Table(*bad_days.COLUMNS, show_edge=False), float("inf")
        if arguments.bad_days:
            drawn += draw_bad_days(rng, arguments.runs or 60)
        elif arguments.ways:
            drawn += draw_ways(rng, arguments.runs or 100, folder)
        else:
            drawn += draw_faults(rng, arguments.runs or 30)
            table, limit = Table(*faults.COLUMNS, show_edge=False), LIMIT_SECONDS
        runs = [each for each in enumerate(drawn, 1) if not arguments.only or each[0] in arguments.only]
        servers = []
        for number in range(arguments.side_by_side):
            place = folder / f"redis-{number}"
            place.mkdir()
            servers.append(stack.enter_context(redis_server(place)))
        good = asyncio.run(campaign(folder, servers, runs, table, limit))
    console = Console(width=160)
    console.print(table)
    console.print(
        f"{good} of {len(runs)} ended with the undisturbed model (seed {arguments.seed}),"
        f" after {time.monotonic() - began:.0f} s"
    )
    sys.exit(0 if good == len(runs) else 1)


if __name__ == "__main__":
    main()
