"""Breaks streams on purpose, for long, and watches memory: `python -m hardening.stream_soak`.

A parameter server and a dispatcher run in their own processes. Their peers let frames time out, stop waiting for them,
close streams with unanswered frames, cancel them, send reports that are refused, and lose connections. grpc.aio is
known to keep some memory of every call and of every read that is cancelled (grpc#43360), so services do neither without
a fault. After faults, memory must not grow in the servers, where any peer could cause it, nor in a client. Resident
memory is measured, so native memory counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys

from rich.console import Console
from rich.table import Table

from hardening.soak import MOST_GROWTH, Course
from hardening.stream_soak.services import SOAKED, Soaked

_WARM_UP = 0.5  # share of the run: gRPC takes memory for many streams before it takes no more
_SAMPLES = 100  # of each process over a run


async def soak(soaked: Soaked, name: str, count: int) -> dict[str, Course]:
    """Does a misdeed `count` times to a new service. Returns the courses of service and client, warm-up left out."""
    misdeed = soaked.misdeeds[name]
    courses = {"server": Course(), "client": Course()}
    step = max(misdeed.times, count // _SAMPLES)
    async with soaked.running() as (address, pid):
        for done in range(0, count, misdeed.times):
            await misdeed.commit(address)
            if done % step < misdeed.times:
                gc.collect()  # garbage does not count as kept memory
                courses["server"].sample(done, pid)
                courses["client"].sample(done, os.getpid())
    return {process: course.after(int(_WARM_UP * count)) for process, course in courses.items()}


def main() -> None:
    """Prints a table, and the figures as JSON in the last line; the exit code tells whether memory stays flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3_200, help="of each misdeed")
    count: int = parser.parse_args().count
    table = Table("service", "misdeed", "process", "MB", "MB per 1,000", "descriptors", show_edge=False)
    figures = []
    for soaked in SOAKED:
        for name in soaked.misdeeds:
            for process, course in asyncio.run(soak(soaked, name, count)).items():
                span = f"{course.megabytes[0]:.0f} to {course.megabytes[-1]:.0f}"
                descriptors = f"{course.descriptors[0]} to {course.descriptors[-1]}"
                table.add_row(soaked.name, name, process, span, f"{course.growth:+.3f}", descriptors)
                figures.append({"misdeed": name, "process": process, "megabytes_per_1000": round(course.growth, 4)})
    Console(width=120).print(table)
    sys.stdout.write(json.dumps({"count": count, "figures": figures}) + "\n")
    sys.exit(0 if all(each["megabytes_per_1000"] < MOST_GROWTH for each in figures) else 1)  # type: ignore[operator]


if __name__ == "__main__":
    main()
