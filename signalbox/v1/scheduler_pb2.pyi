from signalbox.v1 import from_frontend_pb2 as _from_frontend_pb2
from signalbox.v1 import from_worker_pb2 as _from_worker_pb2
from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from signalbox.v1 import to_frontend_pb2 as _to_frontend_pb2
from signalbox.v1 import to_worker_pb2 as _to_worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerExit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_EXIT_UNSPECIFIED: _ClassVar[WorkerExit]
    WORKER_EXIT_CRASHED: _ClassVar[WorkerExit]
    WORKER_EXIT_KILLED: _ClassVar[WorkerExit]
    WORKER_EXIT_STOPPED: _ClassVar[WorkerExit]
WORKER_EXIT_UNSPECIFIED: WorkerExit
WORKER_EXIT_CRASHED: WorkerExit
WORKER_EXIT_KILLED: WorkerExit
WORKER_EXIT_STOPPED: WorkerExit

class FindLeaderRequest(_message.Message):
    __slots__ = ("lease_counter",)
    LEASE_COUNTER_FIELD_NUMBER: _ClassVar[int]
    lease_counter: int
    def __init__(self, lease_counter: _Optional[int] = ...) -> None: ...

class FindLeaderResponse(_message.Message):
    __slots__ = ("is_leader", "leader_address", "scheduler_epoch", "scheduler_instance")
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    is_leader: bool
    leader_address: str
    scheduler_epoch: int
    scheduler_instance: str
    def __init__(self, is_leader: bool = ..., leader_address: _Optional[str] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ...) -> None: ...

class ReportWorkerExitRequest(_message.Message):
    __slots__ = ("worker", "exit", "reason", "step_id")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    worker: _shared_pb2.WorkerRef
    exit: WorkerExit
    reason: str
    step_id: int
    def __init__(self, worker: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., exit: _Optional[_Union[WorkerExit, str]] = ..., reason: _Optional[str] = ..., step_id: _Optional[int] = ...) -> None: ...

class ReportWorkerExitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachWorkersRequest(_message.Message):
    __slots__ = ("hello", "entries")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    hello: RelayHello
    entries: _containers.RepeatedCompositeFieldContainer[RelayedRequest]
    def __init__(self, hello: _Optional[_Union[RelayHello, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[RelayedRequest, _Mapping]]] = ...) -> None: ...

class RelayHello(_message.Message):
    __slots__ = ("relay_id", "window_us", "protocol")
    RELAY_ID_FIELD_NUMBER: _ClassVar[int]
    WINDOW_US_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    relay_id: str
    window_us: int
    protocol: _generation_pb2.ProtocolVersions
    def __init__(self, relay_id: _Optional[str] = ..., window_us: _Optional[int] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ...) -> None: ...

class RelayedRequest(_message.Message):
    __slots__ = ("link", "message", "closed")
    LINK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    link: int
    message: bytes
    closed: LinkClosed
    def __init__(self, link: _Optional[int] = ..., message: _Optional[bytes] = ..., closed: _Optional[_Union[LinkClosed, _Mapping]] = ...) -> None: ...

class AttachWorkersResponse(_message.Message):
    __slots__ = ("entries", "protocol")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[RelayedResponse]
    protocol: _generation_pb2.ProtocolVersions
    def __init__(self, entries: _Optional[_Iterable[_Union[RelayedResponse, _Mapping]]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ...) -> None: ...

class RelayedResponse(_message.Message):
    __slots__ = ("link", "message", "closed")
    LINK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    link: int
    message: bytes
    closed: LinkClosed
    def __init__(self, link: _Optional[int] = ..., message: _Optional[bytes] = ..., closed: _Optional[_Union[LinkClosed, _Mapping]] = ...) -> None: ...

class LinkClosed(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _generation_pb2.Error
    def __init__(self, error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ...) -> None: ...
