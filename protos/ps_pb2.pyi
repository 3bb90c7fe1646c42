from esd.protos import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SumType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUM_TYPE_UNSPECIFIED: _ClassVar[SumType]
    SUM_TYPE_FLOAT32: _ClassVar[SumType]
    SUM_TYPE_FLOAT64: _ClassVar[SumType]
    SUM_TYPE_INT32: _ClassVar[SumType]
    SUM_TYPE_INT64: _ClassVar[SumType]
SUM_TYPE_UNSPECIFIED: SumType
SUM_TYPE_FLOAT32: SumType
SUM_TYPE_FLOAT64: SumType
SUM_TYPE_INT32: SumType
SUM_TYPE_INT64: SumType

class DescribeServerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeServerResponse(_message.Message):
    __slots__ = ("store", "shard", "shards", "tables")
    STORE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    store: str
    shard: int
    shards: int
    tables: _containers.RepeatedCompositeFieldContainer[TableState]
    def __init__(self, store: _Optional[str] = ..., shard: _Optional[int] = ..., shards: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableState, _Mapping]]] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("table", "to_train", "shard", "shards", "claimant")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TO_TRAIN_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.TableSpec
    to_train: bool
    shard: int
    shards: int
    claimant: bytes
    def __init__(self, table: _Optional[_Union[_common_pb2.TableSpec, _Mapping]] = ..., to_train: _Optional[bool] = ..., shard: _Optional[int] = ..., shards: _Optional[int] = ..., claimant: _Optional[bytes] = ...) -> None: ...

class CreateTableResponse(_message.Message):
    __slots__ = ("created", "max_dense_bytes")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MAX_DENSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    created: bool
    max_dense_bytes: int
    def __init__(self, created: _Optional[bool] = ..., max_dense_bytes: _Optional[int] = ...) -> None: ...

class RowBlock(_message.Message):
    __slots__ = ("ids", "versions", "rows")
    IDS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    versions: bytes
    rows: bytes
    def __init__(self, ids: _Optional[bytes] = ..., versions: _Optional[bytes] = ..., rows: _Optional[bytes] = ...) -> None: ...

class GradientBlock(_message.Message):
    __slots__ = ("ids", "target_versions", "contributors", "steps", "gradients", "worker", "rates")
    IDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    target_versions: bytes
    contributors: bytes
    steps: bytes
    gradients: bytes
    worker: int
    rates: bytes
    def __init__(self, ids: _Optional[bytes] = ..., target_versions: _Optional[bytes] = ..., contributors: _Optional[bytes] = ..., steps: _Optional[bytes] = ..., gradients: _Optional[bytes] = ..., worker: _Optional[int] = ..., rates: _Optional[bytes] = ...) -> None: ...

class PullBlock(_message.Message):
    __slots__ = ("ids", "versions", "stateless")
    IDS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    STATELESS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    versions: bytes
    stateless: int
    def __init__(self, ids: _Optional[bytes] = ..., versions: _Optional[bytes] = ..., stateless: _Optional[int] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("sequence", "table", "epoch", "rows", "gradients", "pulls", "wait_ms", "trace_parent")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    table: str
    epoch: int
    rows: RowBlock
    gradients: GradientBlock
    pulls: PullBlock
    wait_ms: int
    trace_parent: str
    def __init__(self, sequence: _Optional[int] = ..., table: _Optional[str] = ..., epoch: _Optional[int] = ..., rows: _Optional[_Union[RowBlock, _Mapping]] = ..., gradients: _Optional[_Union[GradientBlock, _Mapping]] = ..., pulls: _Optional[_Union[PullBlock, _Mapping]] = ..., wait_ms: _Optional[int] = ..., trace_parent: _Optional[str] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ("sequence", "stored", "newly_stored", "already_known", "positions", "rows", "refusal", "done", "credit", "initial")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    NEWLY_STORED_FIELD_NUMBER: _ClassVar[int]
    ALREADY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    stored: bool
    newly_stored: int
    already_known: int
    positions: bytes
    rows: bytes
    refusal: _common_pb2.Refusal
    done: bool
    credit: Credit
    initial: bytes
    def __init__(self, sequence: _Optional[int] = ..., stored: _Optional[bool] = ..., newly_stored: _Optional[int] = ..., already_known: _Optional[int] = ..., positions: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., refusal: _Optional[_Union[_common_pb2.Refusal, _Mapping]] = ..., done: _Optional[bool] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., initial: _Optional[bytes] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("frames", "bytes")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    frames: int
    bytes: int
    def __init__(self, frames: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("table", "ids", "checkpoint")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    table: str
    ids: bytes
    checkpoint: int
    def __init__(self, table: _Optional[str] = ..., ids: _Optional[bytes] = ..., checkpoint: _Optional[int] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("versions", "values")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    versions: bytes
    values: bytes
    def __init__(self, versions: _Optional[bytes] = ..., values: _Optional[bytes] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("table", "epoch", "ids", "below")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    ids: bytes
    below: int
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., ids: _Optional[bytes] = ..., below: _Optional[int] = ...) -> None: ...

class ForgetResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: RowBlock
    def __init__(self, rows: _Optional[_Union[RowBlock, _Mapping]] = ...) -> None: ...

class ChangesRequest(_message.Message):
    __slots__ = ("table", "shard", "shards", "position", "pause_ms")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.TableSpec
    shard: int
    shards: int
    position: bytes
    pause_ms: int
    def __init__(self, table: _Optional[_Union[_common_pb2.TableSpec, _Mapping]] = ..., shard: _Optional[int] = ..., shards: _Optional[int] = ..., position: _Optional[bytes] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class ChangesResponse(_message.Message):
    __slots__ = ("anew", "ids", "values", "position", "age_ms", "checkpoint", "finished")
    ANEW_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    anew: bool
    ids: bytes
    values: bytes
    position: bytes
    age_ms: int
    checkpoint: int
    finished: bool
    def __init__(self, anew: _Optional[bool] = ..., ids: _Optional[bytes] = ..., values: _Optional[bytes] = ..., position: _Optional[bytes] = ..., age_ms: _Optional[int] = ..., checkpoint: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class PutDenseRequest(_message.Message):
    __slots__ = ("table", "data", "last", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    data: bytes
    last: bool
    epoch: int
    def __init__(self, table: _Optional[str] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class PutDenseResponse(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class GetDenseRequest(_message.Message):
    __slots__ = ("table", "checkpoint")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    table: str
    checkpoint: int
    def __init__(self, table: _Optional[str] = ..., checkpoint: _Optional[int] = ...) -> None: ...

class GetDenseResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class TableState(_message.Message):
    __slots__ = ("spec", "rows", "pending_gradients", "waiting_pulls")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PENDING_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_PULLS_FIELD_NUMBER: _ClassVar[int]
    spec: _common_pb2.TableSpec
    rows: int
    pending_gradients: int
    waiting_pulls: int
    def __init__(self, spec: _Optional[_Union[_common_pb2.TableSpec, _Mapping]] = ..., rows: _Optional[int] = ..., pending_gradients: _Optional[int] = ..., waiting_pulls: _Optional[int] = ...) -> None: ...

class CutRequest(_message.Message):
    __slots__ = ("table", "epoch", "checkpoint", "worker", "contributors", "more_contributors", "last")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    MORE_CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    checkpoint: int
    worker: int
    contributors: int
    more_contributors: int
    last: bool
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., worker: _Optional[int] = ..., contributors: _Optional[int] = ..., more_contributors: _Optional[int] = ..., last: _Optional[bool] = ...) -> None: ...

class CutResponse(_message.Message):
    __slots__ = ("complete",)
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    def __init__(self, complete: _Optional[bool] = ...) -> None: ...

class PutPartRequest(_message.Message):
    __slots__ = ("table", "checkpoint", "name", "data", "last", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    checkpoint: int
    name: str
    data: bytes
    last: bool
    epoch: int
    def __init__(self, table: _Optional[str] = ..., checkpoint: _Optional[int] = ..., name: _Optional[str] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class PutPartResponse(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class GetPartRequest(_message.Message):
    __slots__ = ("table", "checkpoint", "name")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    table: str
    checkpoint: int
    name: str
    def __init__(self, table: _Optional[str] = ..., checkpoint: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class GetPartResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class SaveRequest(_message.Message):
    __slots__ = ("table", "epoch", "checkpoint")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    checkpoint: int
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ...) -> None: ...

class SaveResponse(_message.Message):
    __slots__ = ("rows", "bytes", "stored_rows")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    bytes: int
    stored_rows: int
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., stored_rows: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("table", "epoch", "checkpoint", "manifest", "keep", "finished")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    checkpoint: int
    manifest: bytes
    keep: int
    finished: bool
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., manifest: _Optional[bytes] = ..., keep: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BeginEpochRequest(_message.Message):
    __slots__ = ("table", "epoch", "claimant", "takes_over")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_FIELD_NUMBER: _ClassVar[int]
    TAKES_OVER_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    claimant: bytes
    takes_over: bool
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., claimant: _Optional[bytes] = ..., takes_over: _Optional[bool] = ...) -> None: ...

class BeginEpochResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("table", "checkpoint", "epoch", "claimant")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLAIMANT_FIELD_NUMBER: _ClassVar[int]
    table: _common_pb2.TableSpec
    checkpoint: int
    epoch: int
    claimant: bytes
    def __init__(self, table: _Optional[_Union[_common_pb2.TableSpec, _Mapping]] = ..., checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ..., claimant: _Optional[bytes] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("epoch", "checkpoint", "manifest", "checkpoint_rows", "checkpoint_trainings", "rows", "durable", "finished")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ROWS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TRAININGS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    checkpoint: int
    manifest: bytes
    checkpoint_rows: int
    checkpoint_trainings: int
    rows: int
    durable: bool
    finished: bool
    def __init__(self, epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., manifest: _Optional[bytes] = ..., checkpoint_rows: _Optional[int] = ..., checkpoint_trainings: _Optional[int] = ..., rows: _Optional[int] = ..., durable: _Optional[bool] = ..., finished: _Optional[bool] = ...) -> None: ...

class SampleLogEntry(_message.Message):
    __slots__ = ("position", "samples", "batch")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    position: int
    samples: int
    batch: bytes
    def __init__(self, position: _Optional[int] = ..., samples: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class AppendSamplesRequest(_message.Message):
    __slots__ = ("table", "epoch", "entry")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    entry: SampleLogEntry
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., entry: _Optional[_Union[SampleLogEntry, _Mapping]] = ...) -> None: ...

class AppendSamplesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadSamplesRequest(_message.Message):
    __slots__ = ("table", "epoch")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReadSamplesResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: SampleLogEntry
    def __init__(self, entry: _Optional[_Union[SampleLogEntry, _Mapping]] = ...) -> None: ...

class TrimSamplesRequest(_message.Message):
    __slots__ = ("table", "epoch", "position", "all")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    position: int
    all: bool
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., all: _Optional[bool] = ...) -> None: ...

class TrimSamplesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SumMember(_message.Message):
    __slots__ = ("table", "epoch", "worker", "members", "more_members", "wait_ms", "instance", "resumes")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MORE_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: int
    worker: int
    members: int
    more_members: int
    wait_ms: int
    instance: int
    resumes: bool
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[int] = ..., worker: _Optional[int] = ..., members: _Optional[int] = ..., more_members: _Optional[int] = ..., wait_ms: _Optional[int] = ..., instance: _Optional[int] = ..., resumes: _Optional[bool] = ...) -> None: ...

class SumPiece(_message.Message):
    __slots__ = ("iteration", "number", "start", "length", "type", "values", "unwanted")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    UNWANTED_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    number: int
    start: int
    length: int
    type: SumType
    values: bytes
    unwanted: bool
    def __init__(self, iteration: _Optional[int] = ..., number: _Optional[int] = ..., start: _Optional[int] = ..., length: _Optional[int] = ..., type: _Optional[_Union[SumType, str]] = ..., values: _Optional[bytes] = ..., unwanted: _Optional[bool] = ...) -> None: ...

class SumFarewell(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SumRequest(_message.Message):
    __slots__ = ("member", "farewell", "pieces", "sums")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    member: SumMember
    farewell: SumFarewell
    pieces: _containers.RepeatedCompositeFieldContainer[SumPiece]
    sums: int
    def __init__(self, member: _Optional[_Union[SumMember, _Mapping]] = ..., farewell: _Optional[_Union[SumFarewell, _Mapping]] = ..., pieces: _Optional[_Iterable[_Union[SumPiece, _Mapping]]] = ..., sums: _Optional[int] = ...) -> None: ...

class SumWelcome(_message.Message):
    __slots__ = ("pieces",)
    PIECES_FIELD_NUMBER: _ClassVar[int]
    pieces: int
    def __init__(self, pieces: _Optional[int] = ...) -> None: ...

class SumResponse(_message.Message):
    __slots__ = ("refusal", "welcome", "pieces")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    refusal: _common_pb2.Refusal
    welcome: SumWelcome
    pieces: _containers.RepeatedCompositeFieldContainer[SumPiece]
    def __init__(self, refusal: _Optional[_Union[_common_pb2.Refusal, _Mapping]] = ..., welcome: _Optional[_Union[SumWelcome, _Mapping]] = ..., pieces: _Optional[_Iterable[_Union[SumPiece, _Mapping]]] = ...) -> None: ...
