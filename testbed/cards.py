"""Machines with one network card each: network namespaces, whose links the kernel holds to a speed. It needs root."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_NETWORK = "10.98.0"  # in the namespaces only, so that nothing outside them has to be free
_CARD, _BRIDGE = "eth0", "switch"
_BURST = "128kb"  # two full segments of 64 KiB (TCP segmentation offload)
_QUEUE = "50ms"  # the longest time of a packet in the queue, as in deploy/shape


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace with a card of its own.

    Attributes:
        namespace: its name.
        address: of its card.
    """

    namespace: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        """Returns the command line that runs a command on this machine."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def carried(self) -> tuple[int, int]:
        """Returns the bytes that the card has sent and received, as the kernel counts them."""
        shown = _run("ip", "-json", "-statistics", "-netns", self.namespace, "link", "show", "dev", _CARD)
        counted = json.loads(shown)[0]["stats64"]
        return counted["tx"]["bytes"], counted["rx"]["bytes"]


@contextmanager
def machines(speeds: Sequence[float]) -> Iterator[tuple[Machine, list[Machine]]]:
    """Connects machines by one switch, until the end of the block.

    Args:
        speeds: bytes per second of each machine's link, which its card keeps in both directions.

    Yields:
        The machine at the switch, whose own link has no limit, and the others.

    Raises:
        RuntimeError: a command of iproute2 failed; the message holds its output.
    """
    with ExitStack() as stack:
        hub = _machine(stack, "hub")
        _run("ip", "-netns", hub.namespace, "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "-netns", hub.namespace, "address", "add", f"{_NETWORK}.1/24", "dev", _BRIDGE)
        _run("ip", "-netns", hub.namespace, "link", "set", _BRIDGE, "up")
        yield hub, [_connected(stack, hub, number, speed) for number, speed in enumerate(speeds)]


def _machine(stack: ExitStack, name: str, number: int = 0) -> Machine:
    machine = Machine(f"esd-{os.getpid()}-{name}", f"{_NETWORK}.{1 + number}")
    _run("ip", "netns", "add", machine.namespace)
    stack.callback(_run, "ip", "netns", "delete", machine.namespace)
    _run("ip", "-netns", machine.namespace, "link", "set", "lo", "up")
    return machine


def _connected(stack: ExitStack, hub: Machine, number: int, speed: float) -> Machine:
    """Makes a machine, and a cable from its card to a port of the switch. Both ends of the cable keep the speed."""
    machine, port = _machine(stack, f"machine{number}", 10 + number), f"port{number}"
    cable = ("link", "add", _CARD, "type", "veth", "peer", "name", port, "netns", hub.namespace)
    _run("ip", "-netns", machine.namespace, *cable)
    _run("ip", "-netns", hub.namespace, "link", "set", port, "master", _BRIDGE, "up")
    _run("ip", "-netns", machine.namespace, "address", "add", f"{machine.address}/24", "dev", _CARD)
    _run("ip", "-netns", machine.namespace, "link", "set", _CARD, "up")
    for end, device in ((machine, _CARD), (hub, port)):
        bucket = ("tbf", "rate", f"{8 * speed:.0f}bit", "burst", _BURST, "latency", _QUEUE)
        _run("tc", "-netns", end.namespace, "qdisc", "add", "dev", device, "root", *bucket)
    return machine


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
