"""What an alternative is: another way to keep embeddings in step, charged by the same accounting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations
from dispatcher.core.planner import Decision


@dataclass(frozen=True, slots=True)
class Trained:
    """One iteration that was dispatched.

    Attributes:
        ids: uint64 [k, F], the batch.
        decision: who trains what; its plans and operations are those of on-demand synchronisation.
        upcoming: ids of the batches that follow, each uint64 [k', F], as many as the alternative's `lookahead`.
    """

    ids: NDArray[np.uint64]
    decision: Decision
    upcoming: tuple[NDArray[np.uint64], ...] = ()

    def ids_of(self, worker: int) -> NDArray[np.uint64]:
        """The ids of one worker's samples, uint64 [m, F]."""
        ids: NDArray[np.uint64] = self.ids[self.decision.assignment == worker]
        return ids


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one iteration moves.

    Attributes:
        operations: rows between each worker and the parameter server.
        peer_rows: float64 [n], rows between workers, by the link that they take up: the slower one of the two of a
            direct transfer, every link's share of an all-reduce.
        lookups: (row, worker) pairs trained.
        hits: of these, served from the worker's own cache.
    """

    operations: Operations
    peer_rows: NDArray[np.float64]
    lookups: int
    hits: int

    @property
    def rows(self) -> NDArray[np.float64]:
        """float64 [n], rows that each link moves."""
        return self.operations.total + self.peer_rows


class Alternative(Protocol):
    """Follows a run iteration by iteration."""

    @property
    def lookahead(self) -> int:
        """How many upcoming batches it looks at."""
        ...

    def step(self, trained: Trained, /) -> Traffic:
        """Carries out one iteration."""
        ...

    def figures(self) -> dict[str, float]:
        """What else is worth knowing about it so far, by name."""
        ...
