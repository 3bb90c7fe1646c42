"""The machines and links of the comparison."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.cards import Cable

MACHINES = 4
SHARE = 0.25  # of a processor, that each machine has
HUB_SHARE = 1.0  # of a processor, that the machine at the switch has, where servers run


@dataclass(frozen=True, slots=True)
class Topology:
    """The links of the machines.

    Attributes:
        links: their speeds, bits per second.
        round_trip: milliseconds that a packet and its answer take; 0: cables without a delay.
    """

    links: str
    round_trip: float = 0.0

    @property
    def cable(self) -> Cable:
        """The cable of each machine."""
        return Cable(self.round_trip / 1000)


TOPOLOGIES = {
    "equal": Topology("1g,1g,1g,1g"),
    "slow": Topology("100m,100m,10m,10m"),
    "unequal": Topology("1g,1g,100m,100m"),
    "far": Topology("100m,100m,100m,100m", 30.0),
}
