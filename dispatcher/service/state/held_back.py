"""Workers that would get more samples if their caches had room for the rows: each is logged and shown in a metric."""

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
        self._logged: set[int] = set()
        self._shown: list[int] = []

    def begin_epoch(self) -> None:
        """Logs every worker anew from now on."""
        self._logged.clear()
        self._shown = []

    def report(self, workers: Iterable[WorkerRecord], samples: NDArray[np.int32]) -> None:
        """Shows the workloads at which caches limit the workers.

        Args:
            workers: the workers of the job.
            samples: int32 [n], the samples for whose rows a worker's cache has room; 0 if the cache limits nothing.
        """
        limits = samples.tolist()
        if limits == self._shown:
            return
        self._shown = limits
        for worker in workers:
            limit = limits[worker.slot]
            job_metrics.held_back(worker.slot, limit)
            if limit and worker.slot not in self._logged:
                self._logged.add(worker.slot)
                _log.warning(
                    "%s would train more than %d samples per iteration if its cache of %d rows had room for their rows:"
                    " give it more rows (ESD_WORKER_CACHE_ROWS, --cache-ratio)",
                    worker, limit, worker.registration.cache_rows,
                )  # fmt: skip
