from esd.protos import common_pb2 as _common_pb2
from esd.protos import ps_pb2 as _ps_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeWorkerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeWorkerResponse(_message.Message):
    __slots__ = ("worker", "slot", "iteration", "cache_rows", "cached_rows", "device", "bandwidth_bytes_per_second")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROWS_FIELD_NUMBER: _ClassVar[int]
    CACHED_ROWS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    worker: str
    slot: int
    iteration: int
    cache_rows: int
    cached_rows: int
    device: str
    bandwidth_bytes_per_second: float
    def __init__(self, worker: _Optional[str] = ..., slot: _Optional[int] = ..., iteration: _Optional[int] = ..., cache_rows: _Optional[int] = ..., cached_rows: _Optional[int] = ..., device: _Optional[str] = ..., bandwidth_bytes_per_second: _Optional[float] = ...) -> None: ...

class MeetRequest(_message.Message):
    __slots__ = ("epoch", "slot")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    slot: int
    def __init__(self, epoch: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class MeetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliverRequest(_message.Message):
    __slots__ = ("sequence", "table", "epoch", "rows", "iteration")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    table: str
    epoch: int
    rows: _ps_pb2.RowBlock
    iteration: int
    def __init__(self, sequence: _Optional[int] = ..., table: _Optional[str] = ..., epoch: _Optional[int] = ..., rows: _Optional[_Union[_ps_pb2.RowBlock, _Mapping]] = ..., iteration: _Optional[int] = ...) -> None: ...

class DeliverResponse(_message.Message):
    __slots__ = ("sequence", "stored", "newly_stored", "already_known", "refusal", "done", "credit")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    NEWLY_STORED_FIELD_NUMBER: _ClassVar[int]
    ALREADY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    stored: bool
    newly_stored: int
    already_known: int
    refusal: _common_pb2.Refusal
    done: bool
    credit: _ps_pb2.Credit
    def __init__(self, sequence: _Optional[int] = ..., stored: _Optional[bool] = ..., newly_stored: _Optional[int] = ..., already_known: _Optional[int] = ..., refusal: _Optional[_Union[_common_pb2.Refusal, _Mapping]] = ..., done: _Optional[bool] = ..., credit: _Optional[_Union[_ps_pb2.Credit, _Mapping]] = ...) -> None: ...
