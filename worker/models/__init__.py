"""Click-through models over embedding rows, by name."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import nn

from services.domain.errors import InvalidArgument
from services.domain.jobs import JobSpec
from worker.models.click_model import ClickModel, InputShape
from worker.models.dcn import DeepCross
from worker.models.dfm import DeepFM
from worker.models.dlrm import DLRM
from worker.models.wdl import WideDeep

MODELS: dict[str, type[ClickModel]] = {"wdl": WideDeep, "dfm": DeepFM, "dcn": DeepCross, "dlrm": DLRM}


def build_model(job: JobSpec) -> ClickModel:
    """Builds the job's model on the CPU, in float32; its dense parameters are a pure function of the job's seed.

    Raises:
        InvalidArgument: there is no model of that name, or rows are too short for it.
    """
    if job.model.name not in MODELS:
        raise InvalidArgument(f"model {job.model.name!r} is unknown, choose one of {', '.join(MODELS)}")
    shape = InputShape(job.fields, job.table.dimension, job.dense_features)
    with torch.device("meta"):  # shapes only: nothing is drawn from the global random state
        model = MODELS[job.model.name](shape, job.model.hidden)
    model.to_empty(device="cpu")
    _initialise(model, job.seed)
    return model


def _initialise(model: nn.Module, seed: int) -> None:
    """Fills every parameter from a generator of its own, seeded by (seed, parameter name).

    So the values depend neither on the worker, nor on the global random state, nor on the order in which layers are
    created. Weights are uniform in +-1/sqrt(inputs), PyTorch's own rule for linear layers; biases, which have one axis
    only, start at 0.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            generator = torch.Generator().manual_seed(_parameter_seed(seed, name))
            bound = 1 / math.sqrt(max(1, parameter.shape[1]))
            parameter.uniform_(-bound, bound, generator=generator)


def _parameter_seed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # a signed 64-bit seed, not negative
