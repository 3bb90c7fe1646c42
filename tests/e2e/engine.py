"""A second machine with a container engine: a network namespace of this one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.compose import wait_until

READY_SECONDS = 60
STOP_SECONDS = 60


@dataclass(frozen=True)
class Machine:
    """Another machine.

    Attributes:
        engine: address of its engine, which has no images.
        address: of the machine itself.
        address_here: of this machine, as the other one reaches it.
    """

    engine: str
    address: str
    address_here: str


@contextmanager
def second_machine(directory: Path, name: str) -> Iterator[Machine]:
    """Runs an engine in a network of its own, with a cable to this machine.

    Args:
        directory: for its data and its socket.
        name: unique on this machine, up to 12 characters.
    """
    here, there = "10.87.26.1", "10.87.26.2"
    with ExitStack() as stack:
        _ip("netns", "add", name)
        stack.callback(_ip, "netns", "del", name)
        _ip("link", "add", f"{name}-a", "type", "veth", "peer", "name", f"{name}-b", "netns", name)
        stack.callback(_ip, "link", "del", f"{name}-a")
        _ip("address", "add", f"{here}/30", "dev", f"{name}-a")
        _ip("link", "set", f"{name}-a", "up")
        for arguments in (
            ("address", "add", f"{there}/30", "dev", f"{name}-b"),
            ("link", "set", f"{name}-b", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", name, *arguments)
        yield Machine(stack.enter_context(_engine(directory, name)), there, here)


@contextmanager
def _engine(directory: Path, namespace: str) -> Iterator[str]:
    address = f"unix://{directory}/docker.sock"
    command = [
        "nsenter", f"--net=/run/netns/{namespace}", "dockerd", "--data-root", directory / "data", "--exec-root",
        directory / "exec", "--pidfile", directory / "pid", "--host", address, "--bridge=none", "--iptables=false",
    ]  # fmt: skip
    with (directory / "log").open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        assert engine.poll() is None, (directory / "log").read_text()[-2000:]
        asked = subprocess.run(["docker", "--host", address, "version"], check=False, capture_output=True)
        return asked.returncode == 0

    try:
        wait_until(answers, READY_SECONDS)
        yield address
    finally:
        engine.terminate()
        engine.wait(STOP_SECONDS)
        # An engine leaves this behind, and a mount cannot be deleted.
        subprocess.run(["umount", directory / "exec/netns/default"], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
