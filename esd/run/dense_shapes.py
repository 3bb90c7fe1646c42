"""The dense parameters of a job's model, for a simulation that counts their gradients and has no tensors."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from esd.run.model import look_here
from esd.services.domain.jobs import JobSpec


def dense_shapes(job: JobSpec) -> tuple[tuple[int, ...], ...] | None:
    """Builds the model of a job, and returns the shapes of its trained parameters; None without torch.

    Raises:
        InvalidArgument: there is no such model, or it cannot train the job's samples.
    """
    if find_spec("torch") is None:
        return None
    look_here()
    shapes: tuple[tuple[int, ...], ...] = import_module("esd.worker.models").trained_shapes(job)
    return shapes
