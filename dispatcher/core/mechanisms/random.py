"""Random dispatch: what training without embedding scheduling does (Herald §3.1, "vanilla")."""

from __future__ import annotations

import numpy as np

from dispatcher.core.mechanisms.draws import draws
from dispatcher.core.mechanisms.protocol import Choice, Turn


class Random:
    """Shuffles the samples over the workers' places.

    The shuffle depends on (seed, iteration) alone, so that replaying an iteration needs no history.
    """

    lookahead = 0

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def decide(self, turn: Turn, /) -> Choice:
        """Gives worker j capacities[j] samples, every such assignment equally likely."""
        places = np.repeat(np.arange(len(turn.capacities), dtype=np.int32), turn.capacities)
        order = np.argsort(draws(self._seed, turn.iteration, len(places)), kind="stable")
        assignment = np.empty_like(places)
        assignment[order] = places
        return Choice(assignment)
