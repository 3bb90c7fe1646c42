"""Job specifications on the wire."""

from __future__ import annotations

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
_ROW_LIMIT_POLICY_OF: dict[int, RowLimitPolicy] = {
    dispatcher_pb2.ROW_LIMIT_POLICY_UNSPECIFIED: RowLimitPolicy.REFUSE,
    **{number: policy for policy, number in _ROW_LIMIT_POLICIES.items()},
}


def encode_criterion(criterion: Criterion) -> dispatcher_pb2.Criterion:
    """The number of a criterion."""
    return _CRITERIA[criterion]


def decode_criterion(number: int) -> Criterion:
    """The criterion of a number; unspecified means min2-min."""
    criterion = _CRITERION_OF.get(number)
    if criterion is None:
        raise InvalidArgument(f"criterion is {number}, it must be one of {sorted(_CRITERION_OF)}")
    return criterion


def encode_job(job: JobSpec) -> dispatcher_pb2.JobSpec:
    """The message of a job."""
    return dispatcher_pb2.JobSpec(
        name=job.name,
        workers=job.workers,
        fields=job.fields,
        dense_features=job.dense_features,
        batch_size=job.batch_size,
        workloads=job.workloads,
        mechanism=job.mechanism,
        alpha=job.alpha,
        criterion=encode_criterion(job.criterion),
        policy=job.policy,
        seed=job.seed,
        window=job.window,
        table=encode_table(job.table),
        model=dispatcher_pb2.ModelSpec(
            name=job.model.name,
            hidden=job.model.hidden,
            dense_optimizer=encode_optimizer(job.model.dense_optimizer),
        ),
        parameter_servers=job.parameter_servers,
        budget_seconds=job.budget_seconds,
        workload_limits=_encode_limits(job.workload_limits),
        measured_links=job.measured_links,
        eviction_term=job.eviction_term,
        horizon=job.horizon,
        checkpoint_every=job.checkpoint_every,
        max_rows=job.max_rows,
        checkpoint_seconds=job.checkpoint_seconds,
        checkpoints_kept=job.checkpoints_kept,
        at_max_rows=_ROW_LIMIT_POLICIES[job.at_max_rows],
    )


def decode_job(message: dispatcher_pb2.JobSpec) -> JobSpec:
    """The job of a message. No workloads mean equal shares."""
    for part in ("table", "model"):
        if not message.HasField(part):
            raise InvalidArgument(f"job.{part} is not set")
    workloads = tuple(message.workloads)
    if not workloads and 1 <= message.workers <= MAX_WORKERS:  # else the job is refused, whatever the shares
        workloads = equal_workloads(message.batch_size, message.workers)
    return JobSpec(
        name=message.name,
        workers=message.workers,
        fields=message.fields,
        dense_features=message.dense_features,
        batch_size=message.batch_size,
        workloads=workloads,
        mechanism=message.mechanism,
        alpha=message.alpha,
        criterion=decode_criterion(message.criterion),
        policy=message.policy,
        seed=message.seed,
        window=message.window,
        table=decode_table(message.table),
        model=ModelSpec(
            name=message.model.name,
            hidden=tuple(message.model.hidden),
            dense_optimizer=decode_optimizer(message.model.dense_optimizer),
        ),
        parameter_servers=tuple(message.parameter_servers),
        budget_seconds=message.budget_seconds,
        workload_limits=_decode_limits(message),
        measured_links=message.measured_links,
        eviction_term=message.eviction_term,
        horizon=message.horizon or 1,
        checkpoint_every=message.checkpoint_every,
        max_rows=message.max_rows,
        checkpoint_seconds=message.checkpoint_seconds,
        checkpoints_kept=message.checkpoints_kept or 1,
        at_max_rows=_decode_row_limit_policy(message.at_max_rows),
    )


def job_of_json(described: dict[str, Any]) -> JobSpec:
    """The job of a message in protobuf's JSON form. Raises InvalidArgument for anything else."""
    try:
        return decode_job(ParseDict(described, dispatcher_pb2.JobSpec()))
    except ParseError as error:
        raise InvalidArgument(f"this describes no job: {error}") from None


def _decode_row_limit_policy(number: int) -> RowLimitPolicy:
    policy = _ROW_LIMIT_POLICY_OF.get(number)
    if policy is None:
        raise InvalidArgument(f"at_max_rows is {number}, it must be one of {sorted(_ROW_LIMIT_POLICY_OF)}")
    return policy


def _encode_limits(limits: tuple[int, int] | None) -> dispatcher_pb2.WorkloadLimits | None:
    return None if limits is None else dispatcher_pb2.WorkloadLimits(least=limits[0], most=limits[1])


def _decode_limits(message: dispatcher_pb2.JobSpec) -> tuple[int, int] | None:
    if not message.HasField("workload_limits"):
        return None
    return message.workload_limits.least, message.workload_limits.most
