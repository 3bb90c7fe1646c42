"""What n workers move per iteration, with copies that go stale: SCARS' eq. 6 corrected for n > 1.

Equation 6 takes a cached row for one that never moves again. That holds for one worker. With several, a copy is the
latest only while nobody else trains the row. Let p be how likely one worker trains a row in an iteration (eq. 1 with
its m samples), the workers' samples being drawn independently; q = 1 - (1-p)^n how likely any does, and
u = p (1-p)^(n-1) how likely a given one does so alone. A worker that trains the row has the latest value if it trained
it alone the last time, s = u / q, and the copy has stayed since:

    pulls = sum of p (1 - s r)

r is how likely the row is trained again before its copy leaves a cache of C rows. A copy that is of use (the latest, or
a partial gradient to push) stays for t iterations after its last training, where t is what fills the cache (Che's
approximation; Emark lets outdated copies leave first):

    C = sum of (1 - (1-q)^t) p / q,    r = 1 - (1-q)^t

Where rows are of different sizes, each counts in the sum by the room that it takes.

A row that was trained alone is pushed unless the same worker trains it next, alone again; a row that several trained
is pushed by each of them, as a partial gradient. With n = 1, s = 1 and nothing goes stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = int | NDArray[np.float64]  # of every row, or by row

_STEPS = 60  # of the bisection for t
_LONGEST = 1e12  # iterations


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """What one worker is expected to train and move in an iteration, by row.

    Attributes:
        trained: float64 [E], p.
        pulls: float64 [E].
        row_pushes: float64 [E], whole rows.
        gradient_pushes: float64 [E], partial gradients.
    """

    trained: NDArray[np.float64]
    pulls: NDArray[np.float64]
    row_pushes: NDArray[np.float64]
    gradient_pushes: NDArray[np.float64]

    def bytes_by_row(self, row_bytes: Bytes, gradient_bytes: Bytes) -> NDArray[np.float64]:
        """Returns what each row moves, float64 [E], where a row and a partial gradient take that many bytes, or [E]."""
        moved: NDArray[np.float64] = row_bytes * (self.pulls + self.row_pushes) + gradient_bytes * self.gradient_pushes
        return moved


def expected_traffic(
    popularity: NDArray[np.float64],
    samples: float,
    workers: int,
    cached: float,
    sizes: NDArray[np.float64] | None = None,
) -> ExpectedTraffic:
    """What each of n workers moves under random dispatch and on-demand synchronisation.

    Args:
        popularity: P(e), float64 [E], 0..1.
        samples: m, of one worker and iteration.
        workers: n.
        cached: C, the room of its cache, in rows.
        sizes: the room that each row takes, float64 [E], where these differ; None: 1.
    """
    with np.errstate(divide="ignore"):  # a row that every sample has: log 0 is -inf, and exp of it 0
        absent = samples * np.log1p(-popularity)  # the logarithm of 1 - p
    trained = -np.expm1(absent)
    by_any = -np.expm1(workers * absent)
    alone = trained * (1 - trained) ** (workers - 1)
    share = np.divide(trained, by_any, out=np.zeros_like(trained), where=by_any > 0)  # who trains it, trains it here
    again = _trained_again(share, workers * absent, cached, np.ones_like(share) if sizes is None else sizes)
    latest = np.divide(alone, by_any, out=np.zeros_like(alone), where=by_any > 0) * again
    return ExpectedTraffic(trained, trained * (1 - latest), alone * (1 - latest), trained - alone)


def _trained_again(
    share: NDArray[np.float64], absent: NDArray[np.float64], cached: float, sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns r by row. `absent` is the logarithm of how likely nobody trains the row in an iteration."""

    def within(iterations: float) -> NDArray[np.float64]:
        reached: NDArray[np.float64] = -np.expm1(iterations * absent)
        return reached

    taken = share * sizes
    if float(taken @ within(_LONGEST)) <= cached:
        return np.ones_like(share)
    low, high = 0.0, np.log(_LONGEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(taken @ within(np.exp(middle))) < cached else (low, middle)
    return within(np.exp(low))
