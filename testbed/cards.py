"""Machines with one network card each: network namespaces, whose links the kernel holds to a speed. It needs root."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain

from testbed.native_targets import built

_NETWORK = "10.98.0"  # in the namespaces only, so that nothing outside them has to be free
_HERE = "10.98.255.1"  # of this machine at the switch, where it has a cable to it
CARD, _BRIDGE = "eth0", "switch"  # network devices: of a machine, and of the switch
_BURST = "128kb"  # two full segments of 64 KiB (TCP segmentation offload)
_QUEUE = "50ms"  # the longest time of a packet in the queue, as in deploy/shape


@dataclass(frozen=True, slots=True)
class Machine:
    """A network namespace with a card of its own.

    Attributes:
        namespace: its name.
        address: of its card.
        port: of the switch at which it is; empty for the machine of the switch itself.
    """

    namespace: str
    address: str
    port: str = ""

    def command(self, *arguments: str) -> list[str]:
        """Returns the command line that runs a command on this machine."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def carried(self, hub: Machine) -> tuple[int, int]:
        """Returns the bytes that the card has sent and received, by the kernel's queues that hold it to its speed.

        They count the headers of every packet. The interface counts one header for up to 64 KiB, which a real card
        would have cut into packets of 1,500 bytes.
        """
        ends = ((self.namespace, CARD), (hub.namespace, self.port))
        shown = (_run("tc", "-json", "-statistics", "-netns", name, "qdisc", "show", "dev", end) for name, end in ends)
        sent, received = (int(json.loads(each)[0]["bytes"]) for each in shown)
        return sent, received


@dataclass(frozen=True, slots=True)
class Cable:
    """The cable between each machine and the switch.

    Attributes:
        round_trip: seconds that a packet and its answer take.
        lose_one_in: frames of which one is lost; 0: none is lost.
        congestion: the congestion control of all machines; empty: the kernel's default.
    """

    round_trip: float = 0.0
    lose_one_in: int = 0
    congestion: str = ""


@contextmanager
def machines(
    speeds: Sequence[float], cable: Cable = Cable(), *, reached_from_here: bool = False
) -> Iterator[tuple[Machine, list[Machine]]]:
    """Connects machines by one switch, until the end of the block.

    Args:
        speeds: bytes per second of each machine's link, which its card keeps in both directions.
        cable: the delay of every machine.
        reached_from_here: whether this machine has a cable to the one at the switch, and so reaches its services.

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
        if reached_from_here:
            _reach(stack, hub)
        ports = [f"port{number}" for number in range(len(speeds))]
        others = [_machine(stack, f"machine{number}", 10 + number, port) for number, port in enumerate(ports)]
        if not (cable.round_trip or cable.lose_one_in):
            for machine, port in zip(others, ports, strict=True):
                ends = ("link", "add", CARD, "type", "veth", "peer", "name", port, "netns", hub.namespace)
                _run("ip", "-netns", machine.namespace, *ends)
        else:
            _lay(stack, cable, hub, dict(zip(ports, others, strict=True)))
        if cable.congestion:
            for machine in (hub, *others):
                _run(*machine.command("sysctl", "--quiet", f"net.ipv4.tcp_congestion_control={cable.congestion}"))
        for machine, port, speed in zip(others, ports, speeds, strict=True):
            _connect(machine, hub, port, speed)
        yield hub, others


def _machine(stack: ExitStack, name: str, number: int = 0, port: str = "") -> Machine:
    machine = Machine(f"esd-{os.getpid()}-{name}", f"{_NETWORK}.{1 + number}", port)
    _run("ip", "netns", "add", machine.namespace)
    stack.callback(_run, "ip", "netns", "delete", machine.namespace)
    _run("ip", "-netns", machine.namespace, "link", "set", "lo", "up")
    return machine


def _reach(stack: ExitStack, hub: Machine) -> None:
    """Lays a cable from this machine to the one at the switch."""
    device = f"esd{os.getpid()}"
    _run("ip", "link", "add", device, "type", "veth", "peer", "name", "here", "netns", hub.namespace)
    stack.callback(_run, "ip", "link", "delete", device)
    _run("ip", "address", "add", _HERE, "peer", hub.address, "dev", device)
    _run("ip", "link", "set", device, "up")
    _run("ip", "-netns", hub.namespace, "address", "add", hub.address, "peer", _HERE, "dev", "here")
    _run("ip", "-netns", hub.namespace, "link", "set", "here", "up")


def _lay(stack: ExitStack, cable: Cable, hub: Machine, others: Mapping[str, Machine]) -> None:
    """Lays cables with a delay from ports of the switch to machines. A process carries their frames."""
    ends = [(hub.namespace, port, machine.namespace, CARD) for port, machine in others.items()]
    delay = (f"{cable.round_trip / 2 * 1e6:.0f}", str(cable.lose_one_in))
    command = [str(built("delayed_wire", "yardsticks")), *delay, *chain.from_iterable(ends)]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("the cables with a delay were not laid; the message of delayed_wire is on standard error")


def _connect(machine: Machine, hub: Machine, port: str, speed: float) -> None:
    """Puts a machine at a port of the switch. Both ends of its cable keep the speed."""
    _run("ip", "-netns", hub.namespace, "link", "set", port, "master", _BRIDGE, "up")
    _run("ip", "-netns", machine.namespace, "address", "add", f"{machine.address}/24", "dev", CARD)
    _run("ip", "-netns", machine.namespace, "link", "set", CARD, "up")
    for end, device in ((machine, CARD), (hub, port)):
        bucket = ("tbf", "rate", f"{8 * speed:.0f}bit", "burst", _BURST, "latency", _QUEUE)
        _run("tc", "-netns", end.namespace, "qdisc", "add", "dev", device, "root", *bucket)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
