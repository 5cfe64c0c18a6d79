from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LossCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_CAUSE_UNSPECIFIED: _ClassVar[LossCause]
    LOSS_CAUSE_CRASH: _ClassVar[LossCause]
    LOSS_CAUSE_WORKER_GONE: _ClassVar[LossCause]
    LOSS_CAUSE_MOVED: _ClassVar[LossCause]
    LOSS_CAUSE_SILENT: _ClassVar[LossCause]
    LOSS_CAUSE_UNKNOWN: _ClassVar[LossCause]
    LOSS_CAUSE_OUTPUT_LOST: _ClassVar[LossCause]
    LOSS_CAUSE_BAD_BLOCKS: _ClassVar[LossCause]
LOSS_CAUSE_UNSPECIFIED: LossCause
LOSS_CAUSE_CRASH: LossCause
LOSS_CAUSE_WORKER_GONE: LossCause
LOSS_CAUSE_MOVED: LossCause
LOSS_CAUSE_SILENT: LossCause
LOSS_CAUSE_UNKNOWN: LossCause
LOSS_CAUSE_OUTPUT_LOST: LossCause
LOSS_CAUSE_BAD_BLOCKS: LossCause

class AttachFrontendResponse(_message.Message):
    __slots__ = ("placed", "rejected", "lost", "workers", "scheduler_epoch", "scheduler_instance", "outputs_lost", "lends_budgets", "loans", "protocol", "told", "hears_nothing")
    PLACED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_LOST_FIELD_NUMBER: _ClassVar[int]
    LENDS_BUDGETS_FIELD_NUMBER: _ClassVar[int]
    LOANS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    HEARS_NOTHING_FIELD_NUMBER: _ClassVar[int]
    placed: _containers.RepeatedCompositeFieldContainer[RequestPlaced]
    rejected: _containers.RepeatedCompositeFieldContainer[RequestRejected]
    lost: _containers.RepeatedCompositeFieldContainer[RequestLost]
    workers: WorkerDirectory
    scheduler_epoch: int
    scheduler_instance: str
    outputs_lost: _containers.RepeatedCompositeFieldContainer[_shared_pb2.WorkerRef]
    lends_budgets: bool
    loans: _containers.RepeatedCompositeFieldContainer[BudgetLoan]
    protocol: _generation_pb2.ProtocolVersions
    told: int
    hears_nothing: bool
    def __init__(self, placed: _Optional[_Iterable[_Union[RequestPlaced, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[RequestRejected, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[RequestLost, _Mapping]]] = ..., workers: _Optional[_Union[WorkerDirectory, _Mapping]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ..., outputs_lost: _Optional[_Iterable[_Union[_shared_pb2.WorkerRef, _Mapping]]] = ..., lends_budgets: bool = ..., loans: _Optional[_Iterable[_Union[BudgetLoan, _Mapping]]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., told: _Optional[int] = ..., hears_nothing: bool = ...) -> None: ...

class RequestPlaced(_message.Message):
    __slots__ = ("ref", "worker_id", "num_cached_tokens", "leg")
    REF_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    worker_id: str
    num_cached_tokens: int
    leg: int
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., worker_id: _Optional[str] = ..., num_cached_tokens: _Optional[int] = ..., leg: _Optional[int] = ...) -> None: ...

class RequestRejected(_message.Message):
    __slots__ = ("ref", "error")
    REF_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    error: _generation_pb2.Error
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ...) -> None: ...

class RequestLost(_message.Message):
    __slots__ = ("ref", "reason", "cause")
    REF_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    reason: str
    cause: LossCause
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., reason: _Optional[str] = ..., cause: _Optional[_Union[LossCause, str]] = ...) -> None: ...

class WorkerDirectory(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerEntry]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerEntry, _Mapping]]] = ...) -> None: ...

class WorkerEntry(_message.Message):
    __slots__ = ("worker_id", "worker_instance", "address", "model")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_instance: str
    address: str
    model: _shared_pb2.ModelEntry
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[_shared_pb2.ModelEntry, _Mapping]] = ...) -> None: ...

class BudgetLoan(_message.Message):
    __slots__ = ("key_id", "kind", "lent", "left", "wait_ms")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    kind: _shared_pb2.BudgetKind
    lent: int
    left: int
    wait_ms: int
    def __init__(self, key_id: _Optional[str] = ..., kind: _Optional[_Union[_shared_pb2.BudgetKind, str]] = ..., lent: _Optional[int] = ..., left: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...
