from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerReachState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_REACH_STATE_UNSPECIFIED: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_HEARD: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_SILENT: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_REFUSED: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_UNREACHABLE: _ClassVar[WorkerReachState]
WORKER_REACH_STATE_UNSPECIFIED: WorkerReachState
WORKER_REACH_STATE_HEARD: WorkerReachState
WORKER_REACH_STATE_SILENT: WorkerReachState
WORKER_REACH_STATE_REFUSED: WorkerReachState
WORKER_REACH_STATE_UNREACHABLE: WorkerReachState

class AttachFrontendRequest(_message.Message):
    __slots__ = ("hello", "operations", "budgets", "heard")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    hello: FrontendHello
    operations: _containers.RepeatedCompositeFieldContainer[FrontendOperation]
    budgets: _containers.RepeatedCompositeFieldContainer[BudgetReport]
    heard: int
    def __init__(self, hello: _Optional[_Union[FrontendHello, _Mapping]] = ..., operations: _Optional[_Iterable[_Union[FrontendOperation, _Mapping]]] = ..., budgets: _Optional[_Iterable[_Union[BudgetReport, _Mapping]]] = ..., heard: _Optional[int] = ...) -> None: ...

class FrontendHello(_message.Message):
    __slots__ = ("frontend_instance", "live", "paused", "workers", "scheduler_epoch", "protocol", "hello_number", "acknowledges", "num_holders", "holders")
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HELLO_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGES_FIELD_NUMBER: _ClassVar[int]
    NUM_HOLDERS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    frontend_instance: str
    live: _containers.RepeatedCompositeFieldContainer[_shared_pb2.RequestRef]
    paused: _containers.RepeatedCompositeFieldContainer[_shared_pb2.RequestRef]
    workers: _containers.RepeatedCompositeFieldContainer[_shared_pb2.WorkerRef]
    scheduler_epoch: int
    protocol: _generation_pb2.ProtocolVersions
    hello_number: int
    acknowledges: bool
    num_holders: _containers.RepeatedScalarFieldContainer[int]
    holders: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, frontend_instance: _Optional[str] = ..., live: _Optional[_Iterable[_Union[_shared_pb2.RequestRef, _Mapping]]] = ..., paused: _Optional[_Iterable[_Union[_shared_pb2.RequestRef, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[_shared_pb2.WorkerRef, _Mapping]]] = ..., scheduler_epoch: _Optional[int] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., hello_number: _Optional[int] = ..., acknowledges: bool = ..., num_holders: _Optional[_Iterable[int]] = ..., holders: _Optional[_Iterable[int]] = ...) -> None: ...

class FrontendOperation(_message.Message):
    __slots__ = ("submit", "cancel", "finish", "pause", "unpause", "check", "reach")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    UNPAUSE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    submit: SubmitRequest
    cancel: CancelRequest
    finish: FinishRequest
    pause: PauseRequest
    unpause: UnpauseRequest
    check: CheckRequest
    reach: WorkerReach
    def __init__(self, submit: _Optional[_Union[SubmitRequest, _Mapping]] = ..., cancel: _Optional[_Union[CancelRequest, _Mapping]] = ..., finish: _Optional[_Union[FinishRequest, _Mapping]] = ..., pause: _Optional[_Union[PauseRequest, _Mapping]] = ..., unpause: _Optional[_Union[UnpauseRequest, _Mapping]] = ..., check: _Optional[_Union[CheckRequest, _Mapping]] = ..., reach: _Optional[_Union[WorkerReach, _Mapping]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("ref", "meta", "payload")
    REF_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    meta: RequestMeta
    payload: bytes
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., meta: _Optional[_Union[RequestMeta, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class RequestMeta(_message.Message):
    __slots__ = ("model", "num_prompt_tokens", "num_prior_output_tokens", "max_tokens", "block_hashes", "hash_block_size", "root_hash", "adapter", "tenant", "priority", "kind", "has_grammar", "wants_prompt_logprobs", "traceparent", "tracestate", "arrival_ms", "age_ms", "num_losses", "num_crashes", "identity", "other_names", "output_identity")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PRIOR_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    HASH_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROOT_HASH_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HAS_GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    WANTS_PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOSSES_FIELD_NUMBER: _ClassVar[int]
    NUM_CRASHES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    OTHER_NAMES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_IDENTITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_prompt_tokens: int
    num_prior_output_tokens: int
    max_tokens: int
    block_hashes: bytes
    hash_block_size: int
    root_hash: bytes
    adapter: str
    tenant: str
    priority: int
    kind: _generation_pb2.RequestKind
    has_grammar: bool
    wants_prompt_logprobs: bool
    traceparent: str
    tracestate: str
    arrival_ms: int
    age_ms: int
    num_losses: int
    num_crashes: int
    identity: bytes
    other_names: _containers.RepeatedCompositeFieldContainer[BlockNames]
    output_identity: bytes
    def __init__(self, model: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_prior_output_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., block_hashes: _Optional[bytes] = ..., hash_block_size: _Optional[int] = ..., root_hash: _Optional[bytes] = ..., adapter: _Optional[str] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ..., kind: _Optional[_Union[_generation_pb2.RequestKind, str]] = ..., has_grammar: bool = ..., wants_prompt_logprobs: bool = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., arrival_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., num_losses: _Optional[int] = ..., num_crashes: _Optional[int] = ..., identity: _Optional[bytes] = ..., other_names: _Optional[_Iterable[_Union[BlockNames, _Mapping]]] = ..., output_identity: _Optional[bytes] = ...) -> None: ...

class BlockNames(_message.Message):
    __slots__ = ("identity", "root_hash", "block_hashes")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ROOT_HASH_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    identity: bytes
    root_hash: bytes
    block_hashes: bytes
    def __init__(self, identity: _Optional[bytes] = ..., root_hash: _Optional[bytes] = ..., block_hashes: _Optional[bytes] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

class UnpauseRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("ref", "worker_instance", "worker_id", "may_be_on", "model")
    REF_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_ON_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    worker_instance: str
    worker_id: str
    may_be_on: _containers.RepeatedScalarFieldContainer[str]
    model: str
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., worker_instance: _Optional[str] = ..., worker_id: _Optional[str] = ..., may_be_on: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ...) -> None: ...

class WorkerReach(_message.Message):
    __slots__ = ("worker", "state")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    worker: _shared_pb2.WorkerRef
    state: WorkerReachState
    def __init__(self, worker: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., state: _Optional[_Union[WorkerReachState, str]] = ...) -> None: ...

class BudgetReport(_message.Message):
    __slots__ = ("key_id", "kind", "limit", "before", "used", "returned", "wanted", "charged", "least")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    kind: _shared_pb2.BudgetKind
    limit: int
    before: BudgetBefore
    used: int
    returned: int
    wanted: int
    charged: int
    least: int
    def __init__(self, key_id: _Optional[str] = ..., kind: _Optional[_Union[_shared_pb2.BudgetKind, str]] = ..., limit: _Optional[int] = ..., before: _Optional[_Union[BudgetBefore, _Mapping]] = ..., used: _Optional[int] = ..., returned: _Optional[int] = ..., wanted: _Optional[int] = ..., charged: _Optional[int] = ..., least: _Optional[int] = ...) -> None: ...

class BudgetBefore(_message.Message):
    __slots__ = ("held", "left")
    HELD_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    held: int
    left: int
    def __init__(self, held: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...
