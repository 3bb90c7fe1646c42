"""Expected transfers of n workers per iteration, with copies that become stale: SCARS' eq. 6, corrected for n > 1.

Equation 6 assumes that a cached row never moves again, which holds for one worker. With several workers, a copy is the
latest only until another worker trains the row. Let the workers draw their samples independently, and let p be the
probability that a given worker trains a row in an iteration (eq. 1 with its m samples), q = 1 - (1-p)^n the probability
that any worker does, and u = p (1-p)^(n-1) the probability that a given worker does so alone. A worker that trains the
row has the latest value if it trained the row alone the last time, with probability s = u / q, and its copy is still
cached:

    pulls = sum of p (1 - s r)

r is the probability that the row is trained again before its copy leaves a cache of C rows. A useful copy (the latest,
or
a partial gradient to push) stays for t iterations after its last training, where t follows from the size of the cache
(Che's approximation; Emark lets outdated copies leave first):

    C = sum of (1 - (1-q)^t) p / q,    r = 1 - (1-q)^t

If rows have different sizes, the sum weights each row by its size.

A row that one worker trained alone is pushed unless the same worker trains it next, alone again. A row that several
workers trained is pushed by each of these workers, as a partial gradient. With n = 1, s = 1 and no copy becomes stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = int | NDArray[np.float64]  # the same for every row, or by row

_STEPS = 60  # of the bisection for t
_LONGEST = 1e12  # iterations


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """The expected trainings and transfers of one worker in an iteration, by row.

    Attributes:
        trained: float64 [E], p.
        pulls: float64 [E], pulls of the row.
        row_pushes: float64 [E], pushes of the whole row.
        gradient_pushes: float64 [E], pushes of a partial gradient.
    """

    trained: NDArray[np.float64]
    pulls: NDArray[np.float64]
    row_pushes: NDArray[np.float64]
    gradient_pushes: NDArray[np.float64]

    def bytes_by_row(self, row_bytes: Bytes, gradient_bytes: Bytes) -> NDArray[np.float64]:
        """Returns the expected bytes moved for each row, float64 [E].

        Args:
            row_bytes: bytes of a row, one number or float64 [E].
            gradient_bytes: bytes of a partial gradient, one number or float64 [E].
        """
        moved: NDArray[np.float64] = row_bytes * (self.pulls + self.row_pushes) + gradient_bytes * self.gradient_pushes
        return moved


def expected_traffic(
    popularity: NDArray[np.float64],
    samples: float,
    workers: int,
    cached: float,
    sizes: NDArray[np.float64] | None = None,
) -> ExpectedTraffic:
    """Returns the expected transfers of each of n workers under random dispatch and on-demand synchronisation.

    Args:
        popularity: P(e), float64 [E], 0..1.
        samples: m, samples of one worker in an iteration.
        workers: n.
        cached: C, the room of its cache, in rows.
        sizes: the room of each row in a cache, float64 [E]; None if all rows take 1.
    """
    with np.errstate(divide="ignore"):  # for a row of every sample log 0 is -inf, and its exp is 0 as it should be
        absent = samples * np.log1p(-popularity)  # the logarithm of 1 - p
    trained = -np.expm1(absent)
    by_any = -np.expm1(workers * absent)
    alone = trained * (1 - trained) ** (workers - 1)
    share = np.divide(trained, by_any, out=np.zeros_like(trained), where=by_any > 0)  # p / q
    again = _trained_again(share, workers * absent, cached, np.ones_like(share) if sizes is None else sizes)
    latest = np.divide(alone, by_any, out=np.zeros_like(alone), where=by_any > 0) * again
    return ExpectedTraffic(trained, trained * (1 - latest), alone * (1 - latest), trained - alone)


def _trained_again(
    share: NDArray[np.float64], absent: NDArray[np.float64], cached: float, sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns r by row, by bisection over the logarithm of t.

    Args:
        share: float64 [E], p / q.
        absent: float64 [E], the logarithm of the probability 1 - q that no worker trains the row in an iteration.
        cached: C.
        sizes: float64 [E], the room of each row.
    """

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
