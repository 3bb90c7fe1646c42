"""Job specifications on the wire.

Plain options do not appear here: they have the same name in JobSpec and in its message, and both directions iterate
over the fields of JobSpec. The same holds for the options of a mechanism and of a way to synchronise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from esd.protos import common_pb2, dispatcher_pb2
from esd.services.domain.columns import SampleColumns
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy, equal_workloads
from esd.services.domain.losses import Loss
from esd.services.domain.mechanisms import OPTIONS, Criterion, LaiaReading, MechanismOptions
from esd.services.domain.negatives import Negatives
from esd.services.domain.schedules import CONSTANT, Decay, Schedule
from esd.services.domain.sync import WAYS, Sync
from esd.services.domain.tables import TableSpec
from esd.services.domain.worker_set import MAX_WORKERS
from esd.services.wire.dense_sums import decode_dense_sum, encode_dense_sum
from esd.services.wire.enums import EnumCodec
from esd.services.wire.tables import decode_optimizer, decode_table, encode_optimizer, encode_table

_READINGS = EnumCodec(
    LaiaReading,
    dispatcher_pb2.MechanismOptions.Laia.Reading,
    "READING_",
    "laia_reading",
    unspecified=LaiaReading.CODE,
)
CRITERIA = EnumCodec(Criterion, dispatcher_pb2.Criterion, "CRITERION_", "criterion", unspecified=Criterion.MIN2_MIN)
_DECAYS = EnumCodec(Decay, dispatcher_pb2.Schedule.Decay, "DECAY_", "schedule.decay", unspecified=Decay.CONSTANT)
_LOSSES = EnumCodec(Loss, dispatcher_pb2.Loss, "LOSS_", "model.loss", unspecified=Loss.BCE)
_POOLINGS = EnumCodec(Pooling, dispatcher_pb2.Pooling, "POOLING_", "pooling", unspecified=Pooling.ONE)
_ROW_LIMIT_POLICIES = EnumCodec(RowLimitPolicy, dispatcher_pb2.RowLimitPolicy, "ROW_LIMIT_POLICY_", "at_max_rows")


def encode_job(job: JobSpec) -> dispatcher_pb2.JobSpec:
    """Returns the message of a job."""
    return dispatcher_pb2.JobSpec(
        **{field.name: _encode(field.name, getattr(job, field.name)) for field in fields(job)}
    )


def decode_job(message: dispatcher_pb2.JobSpec) -> JobSpec:
    """Returns the job of a message.

    An absent field, or one that is 0, gets JobSpec's default if there is one. Without workloads, the shares are equal.

    Raises:
        InvalidArgument: a part is missing, or a value is out of range; the message names the field.
    """
    values = {field.name: _decode(field, message, "job") for field in fields(JobSpec)}
    if not values["workloads"] and 1 <= message.workers <= MAX_WORKERS:  # otherwise JobSpec refuses the job
        values["workloads"] = equal_workloads(message.batch_size, message.workers)
    return JobSpec(**values)


def job_of_json(described: dict[str, Any]) -> JobSpec:
    """Returns the job of a message in protobuf's JSON form, or in the form that versions before 0.3.0 wrote.

    Raises:
        InvalidArgument: the text describes no job.
    """
    try:
        return decode_job(ParseDict(_renewed(described), dispatcher_pb2.JobSpec()))
    except ParseError as error:
        raise InvalidArgument(f"this describes no job: {error}") from None


def _encode(name: str, value: Any) -> Any:
    encode, _ = _CODECS.get(name, _SAME)
    return None if value is None else encode(value)


def _decode(field: Field[Any], message: Message, owner: str) -> Any:
    value = getattr(message, field.name)
    is_part = message.DESCRIPTOR.fields_by_name[field.name].has_presence
    if not (message.HasField(field.name) if is_part else value):
        if field.default is not MISSING:
            return field.default
        if is_part:
            raise InvalidArgument(f"{owner}.{field.name} is not set")
    _, decode = _CODECS.get(field.name, _SAME)
    return decode(value)


def _encode_model(model: ModelSpec) -> dispatcher_pb2.ModelSpec:
    return dispatcher_pb2.ModelSpec(
        name=model.name,
        hidden=model.hidden,
        dense_optimizer=encode_optimizer(model.dense_optimizer),
        weight_decay=model.weight_decay,
        clip_norm=model.clip_norm,
        loss=_LOSSES.encode(model.loss),
    )


def _decode_model(message: dispatcher_pb2.ModelSpec) -> ModelSpec:
    return ModelSpec(
        message.name,
        tuple(message.hidden),
        decode_optimizer(message.dense_optimizer),
        message.weight_decay,
        message.clip_norm,
        _LOSSES.decode(message.loss),
    )


def _encode_schedule(schedule: Schedule) -> dispatcher_pb2.Schedule | None:
    if schedule == CONSTANT:
        return None
    return dispatcher_pb2.Schedule(
        decay=_DECAYS.encode(schedule.decay),
        warm_up=schedule.warm_up,
        iterations=schedule.iterations,
        share=schedule.share,
    )


def _decode_schedule(message: dispatcher_pb2.Schedule) -> Schedule:
    return Schedule(_DECAYS.decode(message.decay), message.warm_up, message.iterations, message.share)


def _encode_tables(tables: tuple[TableSpec, ...]) -> list[common_pb2.TableSpec]:
    return [encode_table(table) for table in tables]


def _decode_tables(messages: Iterable[common_pb2.TableSpec]) -> tuple[TableSpec, ...]:
    return tuple(decode_table(message) for message in messages)


def encode_columns(columns: SampleColumns) -> dispatcher_pb2.SampleColumns:
    """Returns the message of samples' columns."""
    return dispatcher_pb2.SampleColumns(
        features=_encode_features(columns.features),
        labels=columns.labels,
        dense_names=columns.dense,
        rules=_encode_rules(columns.rules),
    )


def decode_columns(message: dispatcher_pb2.SampleColumns) -> SampleColumns:
    """Reads samples' columns. Raises InvalidArgument if a feature is out of range."""
    return SampleColumns(
        _decode_features(message.features),
        tuple(message.labels),
        tuple(message.dense_names),
        _decode_rules(message.rules),
    )


def _encode_rules(rules: tuple[tuple[str, str], ...]) -> list[dispatcher_pb2.Rule]:
    return [dispatcher_pb2.Rule(name=name, value=value) for name, value in rules]


def _decode_rules(messages: Iterable[dispatcher_pb2.Rule]) -> tuple[tuple[str, str], ...]:
    return tuple((message.name, message.value) for message in messages)


def _encode_features(features: tuple[Feature, ...]) -> list[dispatcher_pb2.Feature]:
    return [
        dispatcher_pb2.Feature(
            name=feature.name,
            table=feature.table,
            pooling=_POOLINGS.encode(feature.pooling),
            max_length=feature.max_length,
            key=feature.key,
        )
        for feature in features
    ]


def _decode_features(messages: Iterable[dispatcher_pb2.Feature]) -> tuple[Feature, ...]:
    return tuple(
        Feature(message.name, message.table, _POOLINGS.decode(message.pooling), message.max_length or 1, message.key)
        for message in messages
    )


# Options of a mechanism or of a way to synchronise are a member of a oneof, whose name is theirs; and the options have
# the same names in their class and in its message.
def _encode_options(options: Sync | MechanismOptions, message: Message) -> None:
    member = getattr(message, options.name.replace("-", "_"))
    member.SetInParent()
    for option in fields(options):
        value = _encode(option.name, getattr(options, option.name))
        if value is not None:
            setattr(member, option.name, value)


def _decode_options(kind: type[Any], message: Message, member: str) -> Any:
    return kind(**{option.name: _decode(option, getattr(message, member), member) for option in fields(kind)})


def _encode_mechanism(options: MechanismOptions) -> dispatcher_pb2.MechanismOptions:
    message = dispatcher_pb2.MechanismOptions()
    _encode_options(options, message)
    return message


def _decode_mechanism(message: dispatcher_pb2.MechanismOptions) -> MechanismOptions | None:
    name = message.WhichOneof("mechanism")
    if name is None:
        return None
    options: MechanismOptions = _decode_options(OPTIONS[name.replace("_", "-")], message, name)
    return options


def _encode_sync(sync: Sync) -> dispatcher_pb2.Sync:
    message = dispatcher_pb2.Sync()
    _encode_options(sync, message)
    return message


def _decode_sync(message: dispatcher_pb2.Sync) -> Sync:
    name = message.WhichOneof("way")
    if name is None:
        raise InvalidArgument(f"job.sync names no way to synchronise; there are {', '.join(WAYS)}")
    sync: Sync = _decode_options(WAYS[name.replace("_", "-")], message, name)
    return sync


def _renewed(described: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of a job as this version writes it.

    In earlier versions `sync` was a name, and its options and the options of all mechanisms were fields of every job.
    """
    renewed = dict(described)
    options = {old: renewed.pop(old, 0) for old in ("direct", "replicated_rows", "pull_bound", "push_bound")}
    name = renewed.get("sync", "SYNC_ON_DEMAND")
    if isinstance(name, str):
        ways = {
            "on_demand": {"direct": bool(options["direct"])},
            "replicated": {"rows": options["replicated_rows"]},
            "bounded": {"pull": options["pull_bound"], "push": options["push_bound"]},
        }
        way = name.removeprefix("SYNC_").lower()
        renewed["sync"] = {way: ways.get(way, {})}
    given = {old: renewed.pop(old) for old in _OPTIONS_OF_MECHANISMS if old in renewed}
    own = OPTIONS.get(renewed.get("mechanism", ""))
    names = [] if own is None else [option.name for option in fields(own) if option.name in _OPTIONS_OF_MECHANISMS]
    if own is not None and names and given:
        given.setdefault("alpha", 0.0)  # a share of 0 was not written
        kept = {name: given[name] for name in names if name in given}
        renewed["mechanism_options"] = {own.name.replace("-", "_"): kept}
    return renewed


# Options that were fields of every job.
_OPTIONS_OF_MECHANISMS = ("alpha", "auto_alpha", "criterion", "solver", "eviction_term", "hash_field", "horizon")


def _encode_negatives(negatives: Negatives) -> dispatcher_pb2.Negatives:
    return dispatcher_pb2.Negatives(**{each.name: getattr(negatives, each.name) for each in fields(Negatives)})


def _decode_negatives(message: dispatcher_pb2.Negatives) -> Negatives:
    return Negatives(**{each.name: getattr(message, each.name) for each in fields(Negatives)})


def _encode_limits(limits: tuple[int, int]) -> dispatcher_pb2.WorkloadLimits:
    return dispatcher_pb2.WorkloadLimits(least=limits[0], most=limits[1])


def _decode_limits(message: dispatcher_pb2.WorkloadLimits) -> tuple[int, int]:
    return message.least, message.most


# A field of a job has one name in JobSpec and in its message, and most fields have one form, too: a number, a text, a
# truth value. These are the fields of another form: how each is encoded, and how it is decoded.
_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "features": (_encode_features, _decode_features),
    "labels": (tuple, tuple),
    "dense_names": (tuple, tuple),
    "rules": (_encode_rules, _decode_rules),
    "workloads": (tuple, tuple),
    "workload_limits": (_encode_limits, _decode_limits),
    "criterion": (CRITERIA.encode, CRITERIA.decode),
    "laia_reading": (_READINGS.encode, _READINGS.decode),
    "mechanism_options": (_encode_mechanism, _decode_mechanism),
    "tables": (_encode_tables, _decode_tables),
    "model": (_encode_model, _decode_model),
    "schedule": (_encode_schedule, _decode_schedule),
    "dense_schedule": (_encode_schedule, _decode_schedule),
    "parameter_servers": (tuple, tuple),
    "sync": (_encode_sync, _decode_sync),
    "dense_sum": (encode_dense_sum, decode_dense_sum),
    "row_ttls": (tuple, tuple),
    "admit_afters": (tuple, tuple),
    "sites": (tuple, tuple),
    "negatives": (_encode_negatives, _decode_negatives),
    "at_max_rows": (_ROW_LIMIT_POLICIES.encode, _ROW_LIMIT_POLICIES.decode),
    "submitters": (lambda submitters: submitters if submitters > 1 else 0, int),  # as jobs of earlier versions have it
}
_SAME = (lambda value: value, lambda value: value)
