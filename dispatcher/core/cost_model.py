"""What one operation costs: seconds on a worker's link, and the same as small integers for the solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations
from services.domain.errors import InvalidArgument

_TOLERANCE = 0.005
_FINEST_SCALE = math.ceil(0.5 / _TOLERANCE)  # rounding to 1/scale errs by at most 0.5/scale
_COST_LIMIT = 2**30  # an entry of the cost matrix, with room for the solvers' reduced costs in int32


class CostModel:
    """Link costs of n workers (ESD Table 1: T_j = D_tran / B_j).

    Attributes:
        transfer_seconds: float64 [n], T_j: seconds to move one row over worker j's link; where rows differ in size
            (ESD §8.2), one unit of row size.
        link_costs: int32 [n], T_j in units of `unit_seconds`, rounded. The solvers are exact on integers. The
            unit is the largest whole fraction of the fastest link's T_j (at most 1/100 of it) for which no
            link cost is off by more than 0.5%: links of 5 and 0.5 Gbit/s cost 1 and 10, of 3 and 2 cost 2 and 3.
        unit_seconds: seconds of one unit.
    """

    def __init__(self, row_bytes: int, bandwidths: Sequence[float], sample_rows: int) -> None:
        """Derives T_j and the integer link costs.

        Args:
            row_bytes: bytes of one row on the wire, optimizer state included; or of one unit of row size.
            bandwidths: bytes per second of each worker's link.
            sample_rows: rows of one sample, or their units; times T_j + T_h, this is the largest possible cost of a
                sample.

        Raises:
            InvalidArgument: a bandwidth is not positive and finite, or the links differ too much.
        """
        for worker, bandwidth in enumerate(bandwidths):
            if not (math.isfinite(bandwidth) and bandwidth > 0):
                raise InvalidArgument(f"bandwidth of worker {worker} is {bandwidth}, it must be positive and finite")
        self.transfer_seconds: NDArray[np.float64] = row_bytes / np.asarray(bandwidths, np.float64)
        fastest = float(self.transfer_seconds.min())
        ratios = self.transfer_seconds / fastest
        scale = _smallest_scale(ratios)
        largest = float(ratios.max()) * scale * 2 * sample_rows
        if largest > _COST_LIMIT:
            raise InvalidArgument(
                f"the slowest link is {ratios.max():.6g} times slower than the fastest: with {sample_rows} rows per "
                f"sample its cost reaches {largest:.6g}, the limit is {_COST_LIMIT}; raise the slowest bandwidth"
            )
        self.link_costs: NDArray[np.int32] = np.rint(ratios * scale).astype(np.int32)
        self.unit_seconds: float = fastest / scale

    def link_seconds(self, volume: Operations) -> NDArray[np.float64]:
        """Time on each link, float64 [n]: T_j times what j's operations move, in rows or units of row size."""
        return self.transfer_seconds * volume.total


def _smallest_scale(ratios: NDArray[np.float64]) -> int:
    """The smallest s for which every round(s r) / s is within _TOLERANCE of r, relative; all r >= 1."""
    scales = np.arange(1, _FINEST_SCALE + 1)[:, None]
    error = np.abs(np.rint(scales * ratios) / scales - ratios) / ratios
    fits = (error <= _TOLERANCE + 1e-12).all(axis=1)
    return int(scales[np.argmax(fits), 0])
