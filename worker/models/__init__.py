"""Click-through models over embedding rows, by name."""

from __future__ import annotations

import torch

from services.domain.errors import InvalidArgument
from services.domain.jobs import JobSpec
from worker.models.dcn import DeepCross
from worker.models.dfm import DeepFM
from worker.models.dlrm import DLRM
from worker.models.initial import initialise
from worker.models.interface import ClickModel, InputShape
from worker.models.wdl import WideDeep

MODELS: dict[str, type[ClickModel]] = {"wdl": WideDeep, "dfm": DeepFM, "dcn": DeepCross, "dlrm": DLRM}


def build_model(job: JobSpec) -> ClickModel:
    """The job's model on the CPU, float32, its dense parameters a pure function of the job's seed.

    Raises:
        InvalidArgument: unknown name, or a row dimension too small for the model.
    """
    if job.model.name not in MODELS:
        raise InvalidArgument(f"model {job.model.name!r} is unknown, choose one of {', '.join(MODELS)}")
    shape = InputShape(job.fields, job.table.dimension, job.dense_features)
    with torch.device("meta"):  # shapes only: nothing is drawn from the global random state
        model = MODELS[job.model.name](shape, job.model.hidden)
    model.to_empty(device="cpu")
    initialise(model, job.seed)
    return model


__all__ = ["MODELS", "ClickModel", "InputShape", "build_model"]
