"""Kills processes of runs on a log at random moments, and compares the models: `python -m hardening.log_kills`.

A producer adds messages to a log while a run trains them, so that its driver often waits at the log's end. Once, at an
iteration drawn from the seed, the driver, the dispatcher or the broker is killed (`kill -9`) and started again. The run
must end with the undisturbed run's model and loss, bit by bit, and with the same position in the log, by which nothing
is lost and nothing trained twice. The broker is a real one, except for Kafka: librdkafka's mock broker, which is not
killed, since it forgets its messages.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from tests.support.log_brokers import BROKERS, LogBroker
from tests.support.log_run import ITERATIONS, LogRun, Strike, log_run
from tests.support.models import model_arrays


def verdict(run: LogRun, undisturbed: LogRun) -> str:
    """Returns the differences of two runs in words; empty: there are none."""
    model, expected = model_arrays(run.model), model_arrays(undisturbed.model)
    differing = [name for name in sorted(model.keys() | expected.keys()) if name not in model or name not in expected]
    differing += [name for name in model.keys() & expected.keys() if not np.array_equal(model[name], expected[name])]
    differing += [figure for figure in ("samples", "loss", "auc") if run.result[figure] != undisturbed.result[figure]]
    if run.position != undisturbed.position:
        differing.append(f"the position, {run.position} in place of {undisturbed.position}")
    return ", ".join(differing)


async def campaign(broker: LogBroker, folder: Path, runs: int, seed: int) -> int:
    """Makes the runs, prints a line for each, and returns how many ended as the undisturbed one."""
    console, rng, good = Console(width=160), random.Random(seed), 0  # noqa: S311 - no secret
    (folder / "undisturbed").mkdir()
    undisturbed = await log_run(broker, folder / "undisturbed")
    for number in range(1, runs + 1):
        strike = Strike(broker.victims[number % len(broker.victims)], rng.randrange(1, ITERATIONS - 1))
        place, began = folder / str(number), time.monotonic()
        place.mkdir()
        try:
            found = verdict(await log_run(broker, place, strike), undisturbed)
        except (RuntimeError, TimeoutError) as error:
            found = repr(error)
        good += not found
        told = f"differs: {found}" if found else "as the undisturbed run"
        console.print(
            f"{number} | {strike.victim} | iteration {strike.iteration} | {told} | {time.monotonic() - began:.1f} s",
            markup=False,
            highlight=False,
        )
    console.print(f"{good} of {runs} ended as the undisturbed run (seed {seed})")
    return good


def main() -> None:
    """Prints a line for each run; the exit code tells whether all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=BROKERS, default="valkey")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="esd-log-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        with BROKERS[arguments.broker](folder / "broker") as broker:
            good = asyncio.run(campaign(broker, folder, arguments.runs, arguments.seed))
    sys.exit(0 if good == arguments.runs else 1)


if __name__ == "__main__":
    main()
