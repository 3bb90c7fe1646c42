"""Reports of iterations as the dispatcher reads them: natively, and without a second check.

The event loop of the dispatcher reads what all workers say, and most of that is such reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from esd.native.wire import read_iterations
from esd.services.domain.reports import (
    LEAST_BANDWIDTH,
    MOST_BANDWIDTH,
    MOST_MOVED,
    MOST_SECONDS,
    OTHER_LABEL,
    IterationReport,
    PhaseTimes,
    TransferCounts,
)

_LIMITS = MOST_SECONDS, LEAST_BANDWIDTH, MOST_BANDWIDTH, MOST_MOVED, OTHER_LABEL


def read_iteration_reports(data: bytes) -> Sequence[IterationReport] | None:
    """Reads a worker's message that holds reports of iterations and nothing else, as most do, in one native call.

    Returns:
        The reports. None if there is anything else to say of the message, such as that it is malformed: it takes
        protobuf's way, which is slower, and `decode_iteration_report` (services/wire/reports.py).
    """
    found = read_iterations(data, *_LIMITS)
    return None if found is None else [_checked_report(data, *fields) for fields in found]


class _CheckedReport(IterationReport):
    """One whose values were checked before."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Checks nothing again."""


def _checked_report(
    data: bytes,
    iteration: int,
    epoch: int,
    loss_sum: float,
    seconds: float,
    measured_bandwidth: float,
    transfers: tuple[int, ...],
    phases: tuple[float, ...],
    label_loss_sums: tuple[float, ...],
    values: int,
    labels: int,
    bins_at: int,
    labels_at: int,
    groups_at: int,
) -> IterationReport:
    """Makes a report of what was read of it. Its columns are views of the message, see `read_iterations`."""
    samples = values // labels
    return _CheckedReport(
        iteration,
        loss_sum,
        np.frombuffer(data, "<u2", values, bins_at).reshape(samples, labels),
        np.frombuffer(data, np.uint8, values, labels_at).reshape(samples, labels),
        TransferCounts._make(transfers),
        PhaseTimes._make(phases),
        seconds,
        epoch,
        measured_bandwidth,
        np.frombuffer(data, "<u8", samples, groups_at) if groups_at else None,
        label_loss_sums,
    )
