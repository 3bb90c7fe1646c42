"""Who would train more samples if its cache had room for their rows: it is told by name, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.service.state.worker_record import WorkerRecord

_log = logging.getLogger(__name__)


class HeldBack:
    """The workers whose balanced workload their caches limit; each is logged once in an epoch."""

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._shown: list[int] = []

    def begin_epoch(self) -> None:
        """Forgets who was told of."""
        self._told.clear()
        self._shown = []

    def report(self, workers: Iterable[WorkerRecord], samples: NDArray[np.int32]) -> None:
        """Shows up to how many samples each worker's cache has room for, int32 [n]; 0 for one that is not held back."""
        limits = samples.tolist()
        if limits == self._shown:
            return
        self._shown = limits
        for worker in workers:
            limit = limits[worker.slot]
            job_metrics.held_back(worker.slot, limit)
            if limit and worker.slot not in self._told:
                self._told.add(worker.slot)
                _log.warning(
                    "%s would train more than %d samples per iteration if its cache of %d rows had room for theirs:"
                    " give it more rows (ESD_WORKER_CACHE_ROWS, --cache-ratio)",
                    worker, limit, worker.registration.cache_rows,
                )  # fmt: skip
