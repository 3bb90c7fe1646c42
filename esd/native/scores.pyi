"""Scores of samples, counted, native."""

import numpy as np
from numpy.typing import NDArray

def count_scores(
    counts: NDArray[np.int64], used: NDArray[np.bool_], bins: NDArray[np.uint16], labels: NDArray[np.uint8], by: int
) -> None:
    """Counts samples by label and score bin. Only labels 0 and 1 count.

    Args:
        counts: int64 [2 x 65536], C-contiguous, label 0 first; changed in place.
        used: bool [65536], C-contiguous, the bins that were ever used; changed in place.
        bins: uint16 [m], score bins.
        labels: uint8 [m].
        by: the number that each sample adds to its count.

    Raises:
        ValueError: an array has another length.
        TypeError: an array is of another type.
    """
