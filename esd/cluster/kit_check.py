"""Lists the wants of this machine as a host of an ESD cluster: `python3 check.py` in the folder of its kit.

It needs Python alone. It prints a line for each want, and exits with 1 if there is one.
"""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_OLDEST_PYTHON = (3, 11)
_REACH_SECONDS = 5


def wants() -> Iterator[str]:
    """Yields the wants of the machine, and remedies."""
    kit = Path(__file__).parent
    facts = json.loads((kit / "kit.json").read_text())
    if sys.version_info < _OLDEST_PYTHON:
        yield f"Python {sys.version.split()[0]} is too old: install 3.11 or later"
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        yield "Python cannot make environments: apt-get install python3-venv"
    for command in facts["commands"]:
        if shutil.which(command) is None:
            yield f"there is no {command}, which comes with the package of this name or with systemd"
    memory = _memory()
    if memory < facts["memory"]:
        yield (
            f"the services may take {facts['memory'] >> 20} MiB, and this machine has {memory >> 20} MiB: lower "
            "`memory` in the cluster file"
        )
    for address in facts["reaches"]:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
        except OSError as error:
            yield f"{address} is not reached ({error}): does the head run, and does a firewall let this through?"


def _memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:"))


if __name__ == "__main__":
    found = list(wants())
    sys.stdout.write("".join(f"{want}\n" for want in found) or "nothing is missing\n")
    sys.exit(1 if found else 0)
