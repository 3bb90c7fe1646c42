"""Runs every test that needs a GPU, after a list of the devices of this machine: `make gpu`.

These are the tests with the mark `gpu`, and whole runs of local clusters, whose workers train on the GPU here and on
processors otherwise. Tests without their device are skipped, so a green run says nothing by itself. This command fails
if something is missing, and names it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from esd.dispatcher.solvers.cuda.device import open_device
from esd.services.domain.errors import Unavailable
from esd.services.runtime.gpus import usable_gpus

MARKED = ("tests/gpu", "tests/contract", "tests/unit/worker", "tests/integration/dispatcher")
WHOLE_RUNS = tuple(f"tests/integration/test_{name}.py" for name in ("same_model", "graphs", "lists", "several_tables"))


def missing() -> list[str]:
    """Returns a line for each part of a GPU machine that is not here; prints the parts that are."""
    lines = []
    gpus, reason = usable_gpus()
    if gpus:
        sys.stdout.write(f"found: {gpus} GPUs that torch can train on\n")
    else:
        lines.append(f"GPUs that torch can train on: {reason}")
    try:
        sys.stdout.write(f"found: {open_device().name} for the solvers\n")
    except Unavailable as error:
        lines.append(f"a device for the solvers: {error}")
    return lines


def main() -> int:
    """Returns the status of the tests, or 1 if something was not found."""
    lines = missing()
    statuses = [_test("-m", "gpu", *MARKED)]
    if not lines:
        statuses.append(_test(*WHOLE_RUNS, device="cuda"))
    for line in lines:
        sys.stderr.write(f"not found: {line}\n")
    return next((status for status in statuses if status), 1 if lines else 0)


def _test(*arguments: str, device: str = "cpu") -> int:
    """Runs tests, whose workers train on a device unless the test names another one, and returns their status."""
    command = [sys.executable, "-m", "pytest", "-rs", "-q", "-n", "auto", *arguments]
    return subprocess.run(command, env=os.environ | {"ESD_WORKER_DEVICE": device}, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
