from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SampleBatch(_message.Message):
    __slots__ = ("samples", "fields", "dense_features", "ids", "dense", "labels", "labels_per_sample", "lengths", "weights", "groups", "sites", "source", "references", "part", "stream")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    DENSE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    samples: int
    fields: int
    dense_features: int
    ids: bytes
    dense: bytes
    labels: bytes
    labels_per_sample: int
    lengths: bytes
    weights: bytes
    groups: bytes
    sites: bytes
    source: SourcePosition
    references: bytes
    part: int
    stream: str
    def __init__(self, samples: _Optional[int] = ..., fields: _Optional[int] = ..., dense_features: _Optional[int] = ..., ids: _Optional[bytes] = ..., dense: _Optional[bytes] = ..., labels: _Optional[bytes] = ..., labels_per_sample: _Optional[int] = ..., lengths: _Optional[bytes] = ..., weights: _Optional[bytes] = ..., groups: _Optional[bytes] = ..., sites: _Optional[bytes] = ..., source: _Optional[_Union[SourcePosition, _Mapping]] = ..., references: _Optional[bytes] = ..., part: _Optional[int] = ..., stream: _Optional[str] = ...) -> None: ...

class SourcePosition(_message.Message):
    __slots__ = ("text", "behind", "lag")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    text: str
    behind: int
    lag: int
    def __init__(self, text: _Optional[str] = ..., behind: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class Optimizer(_message.Message):
    __slots__ = ("kind", "learning_rate", "epsilon", "beta1", "beta2", "max_norm")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Optimizer.Kind]
        KIND_SGD: _ClassVar[Optimizer.Kind]
        KIND_ROWWISE_ADAGRAD: _ClassVar[Optimizer.Kind]
        KIND_ADAM: _ClassVar[Optimizer.Kind]
    KIND_UNSPECIFIED: Optimizer.Kind
    KIND_SGD: Optimizer.Kind
    KIND_ROWWISE_ADAGRAD: Optimizer.Kind
    KIND_ADAM: Optimizer.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    MAX_NORM_FIELD_NUMBER: _ClassVar[int]
    kind: Optimizer.Kind
    learning_rate: float
    epsilon: float
    beta1: float
    beta2: float
    max_norm: float
    def __init__(self, kind: _Optional[_Union[Optimizer.Kind, str]] = ..., learning_rate: _Optional[float] = ..., epsilon: _Optional[float] = ..., beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., max_norm: _Optional[float] = ...) -> None: ...

class TableSpec(_message.Message):
    __slots__ = ("name", "dimension", "optimizer", "seed", "init_scale")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    INIT_SCALE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dimension: int
    optimizer: Optimizer
    seed: int
    init_scale: float
    def __init__(self, name: _Optional[str] = ..., dimension: _Optional[int] = ..., optimizer: _Optional[_Union[Optimizer, _Mapping]] = ..., seed: _Optional[int] = ..., init_scale: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "reason", "message", "sequence")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    sequence: int
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...
