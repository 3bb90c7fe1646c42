"""The description in a file of a trained model: the parts of its job that determine the model."""

from __future__ import annotations

import json

from google.protobuf.json_format import MessageToJson

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.wire.jobs import encode_job, job_of_json

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
