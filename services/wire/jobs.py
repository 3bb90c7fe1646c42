"""Job specifications on the wire.

A plain option is not mentioned here: JobSpec and its message name it alike, and both directions go through the fields
of JobSpec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from protos import dispatcher_pb2
from services.domain.errors import InvalidArgument
from services.domain.jobs import MAX_WORKERS, Criterion, JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
from services.wire.tables import decode_optimizer, decode_table, encode_optimizer, encode_table

_CRITERIA: dict[Criterion, dispatcher_pb2.Criterion] = {
    Criterion.MIN2_MIN: dispatcher_pb2.MIN2_MIN,
    Criterion.MIN3_MIN: dispatcher_pb2.MIN3_MIN,
    Criterion.MIN3_MIN2: dispatcher_pb2.MIN3_MIN2,
    Criterion.ROW_MEAN: dispatcher_pb2.ROW_MEAN,
}
_CRITERION_OF: dict[int, Criterion] = {
    dispatcher_pb2.CRITERION_UNSPECIFIED: Criterion.MIN2_MIN,
    **{number: criterion for criterion, number in _CRITERIA.items()},
}

_ROW_LIMIT_POLICIES: dict[RowLimitPolicy, dispatcher_pb2.RowLimitPolicy] = {
    RowLimitPolicy.REFUSE: dispatcher_pb2.REFUSE,
    RowLimitPolicy.EVICT: dispatcher_pb2.EVICT,
}
_ROW_LIMIT_POLICY_OF: dict[int, RowLimitPolicy] = {number: policy for policy, number in _ROW_LIMIT_POLICIES.items()}


def encode_criterion(criterion: Criterion) -> dispatcher_pb2.Criterion:
    """The number that stands for a criterion in messages."""
    return _CRITERIA[criterion]


def decode_criterion(number: int) -> Criterion:
    """The criterion that a number stands for; unspecified means min2-min. Raises InvalidArgument for another number."""
    criterion = _CRITERION_OF.get(number)
    if criterion is None:
        raise InvalidArgument(f"criterion is {number}, it must be one of {sorted(_CRITERION_OF)}")
    return criterion


def encode_job(job: JobSpec) -> dispatcher_pb2.JobSpec:
    """The message of a job."""
    return dispatcher_pb2.JobSpec(
        **{field.name: _encode(field.name, getattr(job, field.name)) for field in fields(job)}
    )


def decode_job(message: dispatcher_pb2.JobSpec) -> JobSpec:
    """The job of a message.

    A field that is not set, or 0, has JobSpec's default where there is one; no workloads mean equal shares.

    Raises:
        InvalidArgument: a part is missing, or a value is out of range; the message names the field.
    """
    values = {field.name: _decode(field, message) for field in fields(JobSpec)}
    if not values["workloads"] and 1 <= message.workers <= MAX_WORKERS:  # else the job is refused, whatever the shares
        values["workloads"] = equal_workloads(message.batch_size, message.workers)
    return JobSpec(**values)


def job_of_json(described: dict[str, Any]) -> JobSpec:
    """The job of a message in protobuf's JSON form. Raises InvalidArgument for anything else."""
    try:
        return decode_job(ParseDict(described, dispatcher_pb2.JobSpec()))
    except ParseError as error:
        raise InvalidArgument(f"this describes no job: {error}") from None


def _encode(name: str, value: Any) -> Any:
    encode, _ = _CODECS.get(name, _SAME)
    return None if value is None else encode(value)


def _decode(field: Field[Any], message: dispatcher_pb2.JobSpec) -> Any:
    value = getattr(message, field.name)
    is_part = message.DESCRIPTOR.fields_by_name[field.name].has_presence
    if not (message.HasField(field.name) if is_part else value):
        if field.default is not MISSING:
            return field.default
        if is_part:
            raise InvalidArgument(f"job.{field.name} is not set")
    _, decode = _CODECS.get(field.name, _SAME)
    return decode(value)


def _encode_model(model: ModelSpec) -> dispatcher_pb2.ModelSpec:
    return dispatcher_pb2.ModelSpec(
        name=model.name, hidden=model.hidden, dense_optimizer=encode_optimizer(model.dense_optimizer)
    )


def _decode_model(message: dispatcher_pb2.ModelSpec) -> ModelSpec:
    return ModelSpec(message.name, tuple(message.hidden), decode_optimizer(message.dense_optimizer))


def _decode_row_limit_policy(number: int) -> RowLimitPolicy:
    policy = _ROW_LIMIT_POLICY_OF.get(number)
    if policy is None:
        raise InvalidArgument(f"at_max_rows is {number}, it must be one of {sorted(_ROW_LIMIT_POLICY_OF)}")
    return policy


def _encode_limits(limits: tuple[int, int]) -> dispatcher_pb2.WorkloadLimits:
    return dispatcher_pb2.WorkloadLimits(least=limits[0], most=limits[1])


def _decode_limits(message: dispatcher_pb2.WorkloadLimits) -> tuple[int, int]:
    return message.least, message.most


# A field of a job has one name in JobSpec and in its message, and most fields have one form, too: a number, a text, a
# truth value. These are the fields of another form: how each is encoded, and how it is decoded.
_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "workloads": (tuple, tuple),
    "workload_limits": (_encode_limits, _decode_limits),
    "criterion": (encode_criterion, decode_criterion),
    "table": (encode_table, decode_table),
    "model": (_encode_model, _decode_model),
    "parameter_servers": (tuple, tuple),
    "at_max_rows": (_ROW_LIMIT_POLICIES.__getitem__, _decode_row_limit_policy),
}
_SAME = (lambda value: value, lambda value: value)
