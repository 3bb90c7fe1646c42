"""The growth of tables with the samples, beyond those that were counted by Heaps' law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Growth:
    """The rows of each table after some numbers of samples.

    Beyond the last number a table grows by Heaps' law, rows = K samples^b, with the b of the second half of the
    counted samples; b is 1 at most, where every sample brings as many new rows as the one before.

    Attributes:
        samples: int64 [p], ascending, at least one.
        rows: float64 [p, T], the most rows so far; columns do not fall.
    """

    samples: NDArray[np.int64]
    rows: NDArray[np.float64]

    def after(self, samples: float) -> NDArray[np.float64]:
        """Returns the most rows that each table has within this many samples, float64 [T]."""
        last = self.samples[-1]
        if samples > last:
            grown: NDArray[np.float64] = self.rows[-1] * (samples / last) ** self._exponents(self.rows)
            return grown
        at = np.concatenate([[0], self.samples])
        return np.array([np.interp(samples, at, np.concatenate([[0.0], column])) for column in self.rows.T])

    def samples_for(self, rows: float) -> float:
        """Returns after how many samples the tables have more rows than this together; infinite if they never do."""
        totals = self.rows.sum(axis=1)
        if rows < totals[-1]:
            return float(np.interp(rows, np.concatenate([[0.0], totals]), np.concatenate([[0], self.samples])))
        exponent = float(self._exponents(totals[:, None])[0])
        if exponent == 0 or totals[-1] == 0:
            return np.inf
        return float(self.samples[-1] * (rows / totals[-1]) ** (1 / exponent))

    def _exponents(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns b for each column, float64 [T]; 1 where half of the samples are too few to know."""
        half = int(np.argmin(np.abs(self.samples - self.samples[-1] / 2)))
        before, now = rows[half], rows[-1]
        exponents = np.ones(rows.shape[1])
        known = (before > 0) & (half < len(self.samples) - 1)
        steps = np.log(self.samples[-1] / self.samples[half]) if half < len(self.samples) - 1 else 1.0
        exponents[known] = np.log(now[known] / before[known]) / steps
        return np.clip(exponents, 0.0, 1.0)
