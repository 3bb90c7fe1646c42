from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

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
