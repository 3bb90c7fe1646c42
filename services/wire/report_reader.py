"""The fast decoding of iteration reports: one native call per message, without a second check of the values.

The dispatcher's event loop reads the messages of all workers, and most of them are iteration reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from esd.native import wire as native
from esd.services.domain.reports import (
    LEAST_BANDWIDTH,
    MOST_BANDWIDTH,
    MOST_DRIFT,
    MOST_MOVED,
    MOST_SECONDS,
    OTHER_LABEL,
    IterationReport,
    PhaseTimes,
    TransferCounts,
)

_LIMITS = MOST_SECONDS, LEAST_BANDWIDTH, MOST_BANDWIDTH, MOST_DRIFT, MOST_MOVED, OTHER_LABEL


def read_iteration_reports(data: bytes) -> Sequence[IterationReport] | None:
    """Decodes a worker's message that holds only reports of iterations, as most do, in one native call.

    Returns:
        The reports. None for any other message, including a malformed one: the caller then uses protobuf and
        `decode_iteration_report` (services/wire/reports.py), which are slower and raise the errors.
    """
    found = native.read_iterations(data, *_LIMITS)
    return None if found is None else [_checked_report(data, *fields) for fields in found]


class _CheckedReport(IterationReport):
    """An iteration report with values that native code has checked."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Skips the checks of IterationReport."""


def _checked_report(
    data: bytes,
    iteration: int,
    epoch: int,
    loss_sum: float,
    seconds: float,
    measured_bandwidth: float,
    drift: float,
    transfers: tuple[int, ...],
    phases: tuple[float, ...],
    label_loss_sums: tuple[float, ...],
    values: int,
    labels: int,
    bins_at: int,
    labels_at: int,
    groups_at: int,
) -> IterationReport:
    """Makes a report from the result of `read_iterations`. Its columns are views of the message."""
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
        drift,
    )
