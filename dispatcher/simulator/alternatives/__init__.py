"""Ways to synchronise embeddings that exist only in simulation, with the same accounting as live ones, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.simulator.alternatives.alternative import (
    Alternative,
    AlternativeTotals,
    IterationTraffic,
    Trained,
    simulate_alternative,
)
from esd.dispatcher.simulator.alternatives.flushing import Flushing
from esd.dispatcher.simulator.alternatives.het import Het
from esd.dispatcher.simulator.alternatives.uncached import Fae, NoCache, most_popular
from esd.services.domain.errors import InvalidArgument

__all__ = [
    "ALTERNATIVES",
    "Alternative",
    "AlternativeTotals",
    "Cluster",
    "IterationTraffic",
    "Trained",
    "get_alternative",
    "most_popular",
    "simulate_alternative",
]

ALTERNATIVES = ("het:S", "fae", "no-cache", "no-coalescing", "p2f:L")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of an alternative.

    Attributes:
        capacities: cache rows of each worker, [n].
        transfer_seconds: T_j, float64 [n].
        sample_seconds: computation per sample, [n].
        profile: ids from which FAE chooses its hot rows, of any shape; empty for other alternatives.
    """

    capacities: Sequence[int]
    transfer_seconds: NDArray[np.float64]
    sample_seconds: Sequence[float]
    profile: NDArray[np.uint64]


def get_alternative(name: str, cluster: Cluster) -> Alternative:
    """Builds the alternative with a name in ALTERNATIVES, where S and L are whole numbers.

    Raises:
        InvalidArgument: the name is unknown.
    """
    workers = len(cluster.capacities)
    kind, _, number = name.partition(":")
    if kind == "het" and number.isdecimal():
        return Het(cluster.capacities, int(number))
    if kind == "p2f" and number.isdecimal():
        return Flushing(cluster.capacities, cluster.transfer_seconds, cluster.sample_seconds, lookahead=int(number))
    match name:
        case "fae":
            return Fae(workers, most_popular(cluster.profile, min(cluster.capacities)))
        case "no-cache" | "no-coalescing":
            return NoCache(workers, coalesced=name == "no-cache")
    raise InvalidArgument(f"alternative {name!r} is unknown; known are {', '.join(ALTERNATIVES)}")
