"""Models over embeddings: the built-in ones by name, and a user's own by import path."""

from __future__ import annotations

import threading

import torch

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Pooling
from esd.services.domain.jobs import JobSpec
from esd.services.domain.losses import Loss
from esd.services.runtime.users_code import place_of, raise_if_stopped
from esd.worker.models.dcn import DeepCross
from esd.worker.models.dfm import DeepFM
from esd.worker.models.dlrm import DLRM
from esd.worker.models.dropout import replace_dropout
from esd.worker.models.flen import FLEN
from esd.worker.models.graphs import ComplEx, DistMult, RotatE, SimplE, TransE
from esd.worker.models.inputs import InputFeature, ModelInputs
from esd.worker.models.linear import replace_linear
from esd.worker.models.losses import LOSSES
from esd.worker.models.mmoe import MMoE
from esd.worker.models.model import Model
from esd.worker.models.ncf import NeuMF
from esd.worker.models.own import import_model
from esd.worker.models.tbsm import TBSM
from esd.worker.models.trial import try_model
from esd.worker.models.wdl import WideDeep

MODELS: dict[str, type[Model]] = {
    "wdl": WideDeep,
    "dfm": DeepFM,
    "dcn": DeepCross,
    "dlrm": DLRM,
    "ncf": NeuMF,
    "flen": FLEN,
    "mmoe": MMoE,
    "tbsm": TBSM,
    "transe": TransE,
    "distmult": DistMult,
    "complex": ComplEx,
    "simple": SimplE,
    "rotate": RotatE,
}


_one_builds = threading.Lock()  # because torch's default generator belongs to the whole process


def build_model(job: JobSpec) -> Model:
    """Builds the job's model on the CPU, with its own initialisation, and tries it on two samples.

    torch's default generator has the job's seed meanwhile, and afterwards its previous state. So every worker builds
    the same model, and one thread may build the model of the next epoch while another still builds the last one's.

    Raises:
        InvalidArgument: the model does not exist, or cannot train this job's samples.
    """
    with _one_builds:
        return _build(job)


def trained_shapes(job: JobSpec) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the model's parameters that are trained, whose gradients the workers sum.

    Raises:
        As `build_model`.
    """
    return tuple(tuple(each.shape) for each in build_model(job).parameters() if each.requires_grad)


def _build(job: JobSpec) -> Model:
    name, inputs = job.model.name, inputs_of(job)
    kind = find_model(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(job.seed)
        try:
            model = kind(inputs, job.model.hidden)
        except InvalidArgument:
            raise
        except BaseException as error:  # the model may be a user's code
            raise_if_stopped(error)
            raise InvalidArgument(
                f"model {name!r} cannot be built: {type(error).__name__}: {error}{place_of(error)}"
            ) from error
    if (job.model.loss is Loss.OWN) != (kind.loss is not Model.loss):
        has, said = ("no", "another --loss") if job.model.loss is Loss.OWN else ("a", "--loss own")
        raise InvalidArgument(f"model {name!r} has {has} loss of its own: use {said}, not {job.model.loss.value}")
    if job.model.loss is not Loss.OWN:
        model.loss_function = LOSSES[job.model.loss]
    replace_dropout(model, job.seed, model.samples)
    replace_linear(model)
    try_model(model, name, inputs)
    return model


def find_model(name: str) -> type[Model]:
    """Returns the class of a built-in model, or of a user's own, `package.module:Class`.

    Raises:
        InvalidArgument: no model has this name.
    """
    if name in MODELS:
        return MODELS[name]
    if ":" in name:
        return import_model(name)
    raise InvalidArgument(
        f"model {name!r} is unknown, choose one of {', '.join(MODELS)}, or your own as package.module:Class"
    )


def inputs_of(job: JobSpec) -> ModelInputs:
    """Returns the shape of the job's samples."""
    features = tuple(
        InputFeature(
            name=each.name,
            dimension=job.tables[each.table].dimension,
            longest=each.max_length if each.pooling is Pooling.LIST else 0,
            table=each.table,
        )
        for each in job.features
    )
    drawn = job.negatives
    if drawn is None:
        return ModelInputs(features, job.dense_features, job.labels)
    negatives = InputFeature(drawn.name, job.tables[drawn.table].dimension, drawn.count, drawn.table)
    return ModelInputs(features, job.dense_features, job.labels, negatives)
