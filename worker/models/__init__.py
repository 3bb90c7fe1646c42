"""Click-through models over embedding rows, by name."""

from __future__ import annotations

import torch

from services.domain.errors import InvalidArgument
from services.domain.jobs import JobSpec
from worker.models.click_model import ClickModel, InputShape
from worker.models.dcn import DeepCross
from worker.models.dfm import DeepFM
from worker.models.dlrm import DLRM
from worker.models.trial import try_model
from worker.models.wdl import WideDeep

MODELS: dict[str, type[ClickModel]] = {"wdl": WideDeep, "dfm": DeepFM, "dcn": DeepCross, "dlrm": DLRM}


def build_model(job: JobSpec) -> ClickModel:
    """Builds the job's model on the CPU, as it initialises itself, and tries it on two samples.

    What it draws comes from torch's default generator, which has the job's seed meanwhile and then goes on as if
    nothing had been drawn. So every worker builds the same model.

    Raises:
        InvalidArgument: there is no model of that name, or it cannot train this job's samples.
    """
    if job.model.name not in MODELS:
        raise InvalidArgument(f"model {job.model.name!r} is unknown, choose one of {', '.join(MODELS)}")
    shape = InputShape(job.fields, job.table.dimension, job.dense_features)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(job.seed)
        model = MODELS[job.model.name](shape, job.model.hidden)
    try_model(model, job.model.name, shape)
    return model
