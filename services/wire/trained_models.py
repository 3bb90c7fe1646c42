"""What a file of a trained model says about it, besides its numbers: the parts of its job that decide what it is."""

from __future__ import annotations

import json

from google.protobuf.json_format import MessageToJson

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.wire.jobs import encode_job, job_of_json

_PARTS = ("name", "features", "labels", "dense_features", "tables", "model", "seed")

# What a job has besides. A model that is used needs none of it, and it is no part of the file.
_OTHERS = {
    "workers": 1,
    "batchSize": 1,
    "mechanism": "random",
    "policy": "lru",
    "window": 1,
    "parameterServers": ["none"],
}


def describe_model(job: JobSpec) -> str:
    """Returns the parts of a job that decide what its model is, in protobuf's JSON form."""
    message = encode_job(job)
    for field, _ in message.ListFields():
        if field.name not in _PARTS:
            message.ClearField(field.name)
    return MessageToJson(message, indent=None)


def job_of_model(description: str) -> JobSpec:
    """Returns a job that has the model of a description. What it has besides means nothing.

    Raises:
        InvalidArgument: this describes no model.
    """
    try:
        parts = json.loads(description)
    except ValueError as error:
        raise InvalidArgument(f"this describes no model: {error}") from None
    return job_of_json(_OTHERS | parts)
