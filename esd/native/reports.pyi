"""What the dispatcher reads of its workers and counts, native."""

import numpy as np
from numpy.typing import NDArray

IterationFields = tuple[
    int, int, float, float, float, tuple[int, ...], tuple[float, ...], tuple[float, ...], int, int, int, int, int
]

def read_iterations(
    message: bytes,
    most_seconds: float,
    least_bandwidth: float,
    most_bandwidth: float,
    most_moved: int,
    most_label: int,
) -> list[IterationFields] | None:
    """Reads a worker's message that holds reports of iterations and nothing else, all of whose values may stand there.

    Args:
        message: an AttendRequest (protos/dispatcher.proto).
        most_seconds: that an iteration or a phase of it may have taken.
        least_bandwidth: that may have been measured, if any was.
        most_bandwidth: that may have been measured.
        most_moved: rows or bytes of a kind that may have moved.
        most_label: the highest label.

    Returns:
        Of each report: iteration, epoch, loss_sum, seconds, measured_bandwidth; transfers, phases and label_loss_sums
        as tuples; how many labels there are, of all samples, and how many a sample has; and where in the message
        score_bins, labels and groups begin, 0 for no groups. None for any other message: protobuf's reader knows what
        it says, or what is wrong with it.
    """

def count_scores(
    counts: NDArray[np.int64], used: NDArray[np.bool_], bins: NDArray[np.uint16], labels: NDArray[np.uint8], by: int
) -> None:
    """Counts samples by label and score bin. Only labels 0 and 1 count.

    Args:
        counts: int64 [2 x 65536], C-contiguous: first those of label 0; changed in place.
        used: bool [65536], C-contiguous: the bins that were ever used; changed in place.
        bins: uint16 [m], score bins.
        labels: uint8 [m].
        by: what each sample adds to its count.

    Raises:
        ValueError: an array has another length.
        TypeError: an array is of another type.
    """
