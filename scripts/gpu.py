"""Runs every test that needs a GPU, after a list of the devices and tools of this machine: `make gpu`.

Tests without their device are skipped, so a green run says nothing by itself. This command fails if something is
missing, and names it.
"""

from __future__ import annotations

import sys

import pytest

from esd.dispatcher.solvers.cuda.device import open_device
from esd.services.domain.errors import Unavailable
from esd.services.runtime.gpus import usable_gpus


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
    status = pytest.main(["-m", "gpu", "-rs", "-q", "tests/gpu", "tests/contract"])
    for line in lines:
        sys.stderr.write(f"not found: {line}\n")
    return int(status) or (1 if lines else 0)


if __name__ == "__main__":
    sys.exit(main())
