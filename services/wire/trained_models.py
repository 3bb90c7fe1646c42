"""A trained model in files: the parts of its job that determine it, and its dense parameters."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToJson
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.jobs import JobSpec
from esd.services.wire.jobs import encode_job, job_of_json

# The files of the dense part in a model's folder: parameters and buffers by name, and two forms of their computation.
PARAMETERS, PT2, ONNX = "dense.safetensors", "model.pt2", "model.onnx"
DENSE, SCORES = "dense", "scores"  # the last input of that computation, float32 [m, d], and its output, float32 [m, L]

_PARTS = ("name", "features", "labels", "dense_features", "dense_names", "rules", "tables", "model", "seed")

# Values for the other mandatory parts of a job. They do not affect a trained model, and are not in the file.
_OTHERS = {
    "workers": 1,
    "batchSize": 1,
    "mechanism": "random",
    "policy": "lru",
    "window": 1,
    "parameterServers": ["none"],
}


def describe_model(job: JobSpec) -> str:
    """Returns the parts of a job that determine its model, in protobuf's JSON form."""
    message = encode_job(job)
    for field, _ in message.ListFields():
        if field.name not in _PARTS:
            message.ClearField(field.name)
    return MessageToJson(message, indent=None)


def job_of_model(description: str) -> JobSpec:
    """Returns a job with the model of a description. The other parts of the job are placeholders.

    Raises:
        InvalidArgument: the text describes no model.
    """
    try:
        parts = json.loads(description)
    except ValueError as error:
        raise InvalidArgument(f"this describes no model: {error}") from None
    return job_of_json(_OTHERS | parts)


def input_names(feature: Feature) -> tuple[str, ...]:
    """Returns the names of a feature's inputs to the dense part.

    They are its embedding, float32 [m, D]; or its sequences, float32 [m, T, D], and their lengths, int64 [m].
    """
    if feature.pooling is Pooling.LIST:
        return (f"values/{feature.name}", f"lengths/{feature.name}")
    return (f"embedding/{feature.name}",)


def dense_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Returns the parameters and buffers of a model by name.

    Args:
        data: as a worker's `DenseParameters.to_npz` or `DenseParameters.save` has written them; the state of the
            optimizer and the errors of gradients of low rank, which `save` adds, are left out.
    """
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {_plain(name): arrays[name] for name in arrays.files if _is_of_model(name)}


_MODEL = ("parameter/", "buffer/")  # prefixes of DenseParameters.save; to_npz uses plain names


def _is_of_model(name: str) -> bool:
    return name.startswith(_MODEL) or "/" not in name


def _plain(name: str) -> str:
    for prefix in _MODEL:
        name = name.removeprefix(prefix)
    return name
