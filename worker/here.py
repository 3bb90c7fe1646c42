"""A worker as a part of a program, in a thread of the program's choice (`LocalCluster(workers=0)`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from esd.worker.service.epoch import Training
from esd.worker.service.session import WorkerSession
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.device import prepare_device
from esd.worker.training.trainer import model_of_job, train


class WorkerHere:
    """Trains one job with the job's own model, as the process of a worker does.

    Args:
        settings: of the worker.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._session = WorkerSession(settings, Training(model_of_job, torch.device(settings.device), may_rest=True))

    def train(self) -> None:
        """Trains the job to its end, in the calling thread.

        Raises:
            EsdError: a plan was refused, the model's code fails, or the job does.
        """
        with self._torch_prepared(), self._session:
            for step in self._session:
                train(step)

    def close(self) -> None:
        """Leaves the job, if it is not over. Any thread may call it; the one that trains may stand in a debugger."""
        self._session.close()

    @contextmanager
    def _torch_prepared(self) -> Iterator[None]:
        """Has torch as it is in the process of a worker, so that the model is the same, and afterwards as it was."""
        mode, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
        prepare_device(self._settings.device, self._settings.threads)
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            torch.set_num_threads(threads)
