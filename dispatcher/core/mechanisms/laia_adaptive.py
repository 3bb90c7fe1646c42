"""Adaptive LAIA: scores only the tables that matter most, as many as the time allows (Herald §4.3)."""

from __future__ import annotations

import math
import time

from dispatcher.core.mechanisms.laia import allocate
from dispatcher.core.mechanisms.protocol import Choice, Turn
from dispatcher.core.mechanisms.table_profiler import TableProfiler

_SMOOTHING = 0.2


class LaiaAdaptive:
    """LAIA on the k tables of the highest degree of infrequency. Without a budget k = F, and it is LAIA."""

    lookahead = 0

    def __init__(self, seed: int, fields: int, workers: int, *, tables: int | None = None) -> None:
        """Starts without knowledge.

        Args:
            seed: of the ties.
            fields: F; every field is a table of its own.
            workers: n.
            tables: k, if it is not to follow from the budget.
        """
        self._seed = seed
        self._fields = fields
        self._tables = tables
        self._profiler = TableProfiler(fields, workers)
        self._scoring_seconds = 0.0  # per sample and table
        self._other_seconds = 0.0  # per decision: profiling and allocation

    def decide(self, turn: Turn, /) -> Choice:
        """Profiles, scores as many tables as time allows, at least one, and allocates (Alg. 1)."""
        started = time.perf_counter()
        self._profiler.add(turn.ids)
        tables = self._tables or self._affordable(turn)
        scoring = time.perf_counter()
        scores = turn.engine.affinity(self._profiler.highest(tables) if tables < self._fields else None)
        scored = time.perf_counter()
        assignment = allocate(scores, turn.capacities, self._seed, turn.iteration)
        self._learn((scored - scoring) / (len(turn.ids) * tables), time.perf_counter() - scored + scoring - started)
        return Choice(assignment, score_seconds=scored - started)

    def _affordable(self, turn: Turn) -> int:
        """k: the time that is left but for allocation, divided by what a table takes."""
        left = turn.seconds_left - self._other_seconds
        table = self._scoring_seconds * len(turn.ids)
        if math.isinf(left) or left >= table * self._fields:
            return self._fields
        return max(1, int(left / table))

    def _learn(self, scoring: float, other: float) -> None:
        first = self._scoring_seconds == 0.0
        weight = 1.0 if first else _SMOOTHING
        self._scoring_seconds += weight * (scoring - self._scoring_seconds)
        self._other_seconds += weight * (other - self._other_seconds)
