from signalbox.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BudgetKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_KIND_UNSPECIFIED: _ClassVar[BudgetKind]
    BUDGET_KIND_REQUESTS_AT_ONCE: _ClassVar[BudgetKind]
    BUDGET_KIND_REQUESTS_PER_MINUTE: _ClassVar[BudgetKind]
    BUDGET_KIND_TOKENS_PER_MINUTE: _ClassVar[BudgetKind]

class WorkerReachState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_REACH_STATE_UNSPECIFIED: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_HEARD: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_SILENT: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_REFUSED: _ClassVar[WorkerReachState]
    WORKER_REACH_STATE_UNREACHABLE: _ClassVar[WorkerReachState]

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

class BlockGroupKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOCK_GROUP_KIND_UNSPECIFIED: _ClassVar[BlockGroupKind]
    BLOCK_GROUP_KIND_WINDOW: _ClassVar[BlockGroupKind]
    BLOCK_GROUP_KIND_CHUNK: _ClassVar[BlockGroupKind]

class SlotStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_STATUS_UNSPECIFIED: _ClassVar[SlotStatus]
    SLOT_STATUS_PREPARING: _ClassVar[SlotStatus]
    SLOT_STATUS_PREFILL: _ClassVar[SlotStatus]
    SLOT_STATUS_DECODE: _ClassVar[SlotStatus]
    SLOT_STATUS_PREEMPTED: _ClassVar[SlotStatus]
    SLOT_STATUS_ENDED: _ClassVar[SlotStatus]
    SLOT_STATUS_IMPORTED: _ClassVar[SlotStatus]
    SLOT_STATUS_FROZEN: _ClassVar[SlotStatus]

class NotRunReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOT_RUN_REASON_UNSPECIFIED: _ClassVar[NotRunReason]
    NOT_RUN_REASON_STALE: _ClassVar[NotRunReason]
    NOT_RUN_REASON_ERROR: _ClassVar[NotRunReason]
    NOT_RUN_REASON_ENDED: _ClassVar[NotRunReason]

class WorkerRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_ROLE_UNSPECIFIED: _ClassVar[WorkerRole]
    WORKER_ROLE_BOTH: _ClassVar[WorkerRole]
    WORKER_ROLE_PREFILL: _ClassVar[WorkerRole]
    WORKER_ROLE_DECODE: _ClassVar[WorkerRole]

class WorkerExit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_EXIT_UNSPECIFIED: _ClassVar[WorkerExit]
    WORKER_EXIT_CRASHED: _ClassVar[WorkerExit]
    WORKER_EXIT_KILLED: _ClassVar[WorkerExit]
    WORKER_EXIT_STOPPED: _ClassVar[WorkerExit]
BUDGET_KIND_UNSPECIFIED: BudgetKind
BUDGET_KIND_REQUESTS_AT_ONCE: BudgetKind
BUDGET_KIND_REQUESTS_PER_MINUTE: BudgetKind
BUDGET_KIND_TOKENS_PER_MINUTE: BudgetKind
WORKER_REACH_STATE_UNSPECIFIED: WorkerReachState
WORKER_REACH_STATE_HEARD: WorkerReachState
WORKER_REACH_STATE_SILENT: WorkerReachState
WORKER_REACH_STATE_REFUSED: WorkerReachState
WORKER_REACH_STATE_UNREACHABLE: WorkerReachState
LOSS_CAUSE_UNSPECIFIED: LossCause
LOSS_CAUSE_CRASH: LossCause
LOSS_CAUSE_WORKER_GONE: LossCause
LOSS_CAUSE_MOVED: LossCause
LOSS_CAUSE_SILENT: LossCause
LOSS_CAUSE_UNKNOWN: LossCause
LOSS_CAUSE_OUTPUT_LOST: LossCause
LOSS_CAUSE_BAD_BLOCKS: LossCause
BLOCK_GROUP_KIND_UNSPECIFIED: BlockGroupKind
BLOCK_GROUP_KIND_WINDOW: BlockGroupKind
BLOCK_GROUP_KIND_CHUNK: BlockGroupKind
SLOT_STATUS_UNSPECIFIED: SlotStatus
SLOT_STATUS_PREPARING: SlotStatus
SLOT_STATUS_PREFILL: SlotStatus
SLOT_STATUS_DECODE: SlotStatus
SLOT_STATUS_PREEMPTED: SlotStatus
SLOT_STATUS_ENDED: SlotStatus
SLOT_STATUS_IMPORTED: SlotStatus
SLOT_STATUS_FROZEN: SlotStatus
NOT_RUN_REASON_UNSPECIFIED: NotRunReason
NOT_RUN_REASON_STALE: NotRunReason
NOT_RUN_REASON_ERROR: NotRunReason
NOT_RUN_REASON_ENDED: NotRunReason
WORKER_ROLE_UNSPECIFIED: WorkerRole
WORKER_ROLE_BOTH: WorkerRole
WORKER_ROLE_PREFILL: WorkerRole
WORKER_ROLE_DECODE: WorkerRole
WORKER_EXIT_UNSPECIFIED: WorkerExit
WORKER_EXIT_CRASHED: WorkerExit
WORKER_EXIT_KILLED: WorkerExit
WORKER_EXIT_STOPPED: WorkerExit

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
    live: _containers.RepeatedCompositeFieldContainer[RequestRef]
    paused: _containers.RepeatedCompositeFieldContainer[RequestRef]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    scheduler_epoch: int
    protocol: _generation_pb2.ProtocolVersions
    hello_number: int
    acknowledges: bool
    num_holders: _containers.RepeatedScalarFieldContainer[int]
    holders: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, frontend_instance: _Optional[str] = ..., live: _Optional[_Iterable[_Union[RequestRef, _Mapping]]] = ..., paused: _Optional[_Iterable[_Union[RequestRef, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ..., scheduler_epoch: _Optional[int] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., hello_number: _Optional[int] = ..., acknowledges: bool = ..., num_holders: _Optional[_Iterable[int]] = ..., holders: _Optional[_Iterable[int]] = ...) -> None: ...

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
    kind: BudgetKind
    limit: int
    before: BudgetBefore
    used: int
    returned: int
    wanted: int
    charged: int
    least: int
    def __init__(self, key_id: _Optional[str] = ..., kind: _Optional[_Union[BudgetKind, str]] = ..., limit: _Optional[int] = ..., before: _Optional[_Union[BudgetBefore, _Mapping]] = ..., used: _Optional[int] = ..., returned: _Optional[int] = ..., wanted: _Optional[int] = ..., charged: _Optional[int] = ..., least: _Optional[int] = ...) -> None: ...

class BudgetBefore(_message.Message):
    __slots__ = ("held", "left")
    HELD_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    held: int
    left: int
    def __init__(self, held: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...

class WorkerRef(_message.Message):
    __slots__ = ("worker_id", "worker_instance")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_instance: str
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ...) -> None: ...

class RequestRef(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

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

class WorkerReach(_message.Message):
    __slots__ = ("worker", "state")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerRef
    state: WorkerReachState
    def __init__(self, worker: _Optional[_Union[WorkerRef, _Mapping]] = ..., state: _Optional[_Union[WorkerReachState, str]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("ref", "meta", "payload")
    REF_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    meta: RequestMeta
    payload: bytes
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ..., meta: _Optional[_Union[RequestMeta, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

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
    ref: RequestRef
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class UnpauseRequest(_message.Message):
    __slots__ = ("ref",)
    REF_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("ref", "worker_instance", "worker_id", "may_be_on", "model")
    REF_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_ON_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    worker_instance: str
    worker_id: str
    may_be_on: _containers.RepeatedScalarFieldContainer[str]
    model: str
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ..., worker_instance: _Optional[str] = ..., worker_id: _Optional[str] = ..., may_be_on: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ...) -> None: ...

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
    outputs_lost: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    lends_budgets: bool
    loans: _containers.RepeatedCompositeFieldContainer[BudgetLoan]
    protocol: _generation_pb2.ProtocolVersions
    told: int
    hears_nothing: bool
    def __init__(self, placed: _Optional[_Iterable[_Union[RequestPlaced, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[RequestRejected, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[RequestLost, _Mapping]]] = ..., workers: _Optional[_Union[WorkerDirectory, _Mapping]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ..., outputs_lost: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ..., lends_budgets: bool = ..., loans: _Optional[_Iterable[_Union[BudgetLoan, _Mapping]]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., told: _Optional[int] = ..., hears_nothing: bool = ...) -> None: ...

class BudgetLoan(_message.Message):
    __slots__ = ("key_id", "kind", "lent", "left", "wait_ms")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    kind: BudgetKind
    lent: int
    left: int
    wait_ms: int
    def __init__(self, key_id: _Optional[str] = ..., kind: _Optional[_Union[BudgetKind, str]] = ..., lent: _Optional[int] = ..., left: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class RequestPlaced(_message.Message):
    __slots__ = ("ref", "worker_id", "num_cached_tokens", "leg")
    REF_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    worker_id: str
    num_cached_tokens: int
    leg: int
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ..., worker_id: _Optional[str] = ..., num_cached_tokens: _Optional[int] = ..., leg: _Optional[int] = ...) -> None: ...

class RequestRejected(_message.Message):
    __slots__ = ("ref", "error")
    REF_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    error: _generation_pb2.Error
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ...) -> None: ...

class RequestLost(_message.Message):
    __slots__ = ("ref", "reason", "cause")
    REF_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ref: RequestRef
    reason: str
    cause: LossCause
    def __init__(self, ref: _Optional[_Union[RequestRef, _Mapping]] = ..., reason: _Optional[str] = ..., cause: _Optional[_Union[LossCause, str]] = ...) -> None: ...

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
    model: ModelEntry
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[ModelEntry, _Mapping]] = ...) -> None: ...

class ModelEntry(_message.Message):
    __slots__ = ("model", "max_model_len", "block_size", "max_request_tokens", "vocab_size", "tokenizer_fingerprint", "tasks", "identity")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    max_model_len: int
    block_size: int
    max_request_tokens: int
    vocab_size: int
    tokenizer_fingerprint: str
    tasks: _containers.RepeatedScalarFieldContainer[_generation_pb2.ModelTask]
    identity: ModelIdentity
    def __init__(self, model: _Optional[str] = ..., max_model_len: _Optional[int] = ..., block_size: _Optional[int] = ..., max_request_tokens: _Optional[int] = ..., vocab_size: _Optional[int] = ..., tokenizer_fingerprint: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[_generation_pb2.ModelTask, str]]] = ..., identity: _Optional[_Union[ModelIdentity, _Mapping]] = ...) -> None: ...

class ModelIdentity(_message.Message):
    __slots__ = ("weights", "form", "number_class")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    NUMBER_CLASS_FIELD_NUMBER: _ClassVar[int]
    weights: str
    form: str
    number_class: str
    def __init__(self, weights: _Optional[str] = ..., form: _Optional[str] = ..., number_class: _Optional[str] = ...) -> None: ...

class AttachWorkerRequest(_message.Message):
    __slots__ = ("hello", "snapshot_part", "outputs", "events")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PART_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    hello: WorkerHello
    snapshot_part: SnapshotPart
    outputs: _containers.RepeatedCompositeFieldContainer[ModelRunnerOutput]
    events: _containers.RepeatedCompositeFieldContainer[WorkerEvent]
    def __init__(self, hello: _Optional[_Union[WorkerHello, _Mapping]] = ..., snapshot_part: _Optional[_Union[SnapshotPart, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[ModelRunnerOutput, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[WorkerEvent, _Mapping]]] = ...) -> None: ...

class WorkerHello(_message.Message):
    __slots__ = ("worker_id", "worker_instance", "address", "model", "num_slots", "num_blocks", "num_host_blocks", "max_num_batched_tokens", "max_draft_tokens", "kinds", "snapshot", "scheduler_epoch", "scheduler_instance", "groups", "reuses_no_blocks", "protocol", "state_group", "num_spine_host_blocks", "kv_layout", "role", "num_ranks", "num_lanes", "pulls_blocks", "hello_number", "step_timeout_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REUSES_NO_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STATE_GROUP_FIELD_NUMBER: _ClassVar[int]
    NUM_SPINE_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    KV_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    PULLS_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    HELLO_NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_instance: str
    address: str
    model: ModelEntry
    num_slots: int
    num_blocks: int
    num_host_blocks: int
    max_num_batched_tokens: int
    max_draft_tokens: int
    kinds: _containers.RepeatedScalarFieldContainer[_generation_pb2.RequestKind]
    snapshot: WorkerSnapshot
    scheduler_epoch: int
    scheduler_instance: str
    groups: _containers.RepeatedCompositeFieldContainer[BlockGroup]
    reuses_no_blocks: bool
    protocol: _generation_pb2.ProtocolVersions
    state_group: StateGroup
    num_spine_host_blocks: int
    kv_layout: str
    role: WorkerRole
    num_ranks: int
    num_lanes: int
    pulls_blocks: bool
    hello_number: int
    step_timeout_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[ModelEntry, _Mapping]] = ..., num_slots: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_host_blocks: _Optional[int] = ..., max_num_batched_tokens: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[_generation_pb2.RequestKind, str]]] = ..., snapshot: _Optional[_Union[WorkerSnapshot, _Mapping]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[BlockGroup, _Mapping]]] = ..., reuses_no_blocks: bool = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., state_group: _Optional[_Union[StateGroup, _Mapping]] = ..., num_spine_host_blocks: _Optional[int] = ..., kv_layout: _Optional[str] = ..., role: _Optional[_Union[WorkerRole, str]] = ..., num_ranks: _Optional[int] = ..., num_lanes: _Optional[int] = ..., pulls_blocks: bool = ..., hello_number: _Optional[int] = ..., step_timeout_ms: _Optional[int] = ...) -> None: ...

class StateGroup(_message.Message):
    __slots__ = ("boundary", "num_checkpoints", "bytes_per_checkpoint", "prompts_only", "num_host_checkpoints")
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    NUM_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_ONLY_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    boundary: int
    num_checkpoints: int
    bytes_per_checkpoint: int
    prompts_only: bool
    num_host_checkpoints: int
    def __init__(self, boundary: _Optional[int] = ..., num_checkpoints: _Optional[int] = ..., bytes_per_checkpoint: _Optional[int] = ..., prompts_only: bool = ..., num_host_checkpoints: _Optional[int] = ...) -> None: ...

class BlockGroup(_message.Message):
    __slots__ = ("kind", "reach", "num_blocks", "bytes_per_block", "num_host_blocks")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    kind: BlockGroupKind
    reach: int
    num_blocks: int
    bytes_per_block: int
    num_host_blocks: int
    def __init__(self, kind: _Optional[_Union[BlockGroupKind, str]] = ..., reach: _Optional[int] = ..., num_blocks: _Optional[int] = ..., bytes_per_block: _Optional[int] = ..., num_host_blocks: _Optional[int] = ...) -> None: ...

class WorkerSnapshot(_message.Message):
    __slots__ = ("scheduler_epoch", "last_step_id", "slots", "scheduler_instance", "blocks_written_alone", "last_scheduled_step_id", "groups_written_alone", "num_parts")
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_WRITTEN_ALONE_FIELD_NUMBER: _ClassVar[int]
    LAST_SCHEDULED_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_WRITTEN_ALONE_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTS_FIELD_NUMBER: _ClassVar[int]
    scheduler_epoch: int
    last_step_id: int
    slots: _containers.RepeatedCompositeFieldContainer[SlotSnapshot]
    scheduler_instance: str
    blocks_written_alone: bytes
    last_scheduled_step_id: int
    groups_written_alone: _containers.RepeatedCompositeFieldContainer[GroupBlocks]
    num_parts: int
    def __init__(self, scheduler_epoch: _Optional[int] = ..., last_step_id: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[SlotSnapshot, _Mapping]]] = ..., scheduler_instance: _Optional[str] = ..., blocks_written_alone: _Optional[bytes] = ..., last_scheduled_step_id: _Optional[int] = ..., groups_written_alone: _Optional[_Iterable[_Union[GroupBlocks, _Mapping]]] = ..., num_parts: _Optional[int] = ...) -> None: ...

class GroupBlocks(_message.Message):
    __slots__ = ("block_ids", "first")
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    block_ids: bytes
    first: int
    def __init__(self, block_ids: _Optional[bytes] = ..., first: _Optional[int] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedCompositeFieldContainer[SlotSnapshot]
    def __init__(self, slots: _Optional[_Iterable[_Union[SlotSnapshot, _Mapping]]] = ...) -> None: ...

class SlotSnapshot(_message.Message):
    __slots__ = ("slot", "ref", "frontend_instance", "status", "block_ids", "sealed_hashes", "num_computed_tokens", "num_output_tokens", "prefill_target", "max_draft_tokens", "paused", "scheduler_meta", "withdrawn", "group_tables", "leg", "transfer", "frozen_status", "lane")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    SEALED_HASHES_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TARGET_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_META_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    GROUP_TABLES_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    FROZEN_STATUS_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    slot: int
    ref: RequestRef
    frontend_instance: str
    status: SlotStatus
    block_ids: bytes
    sealed_hashes: bytes
    num_computed_tokens: int
    num_output_tokens: int
    prefill_target: int
    max_draft_tokens: int
    paused: bool
    scheduler_meta: bytes
    withdrawn: bool
    group_tables: _containers.RepeatedCompositeFieldContainer[GroupBlocks]
    leg: int
    transfer: TransferRef
    frozen_status: SlotStatus
    lane: int
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[RequestRef, _Mapping]] = ..., frontend_instance: _Optional[str] = ..., status: _Optional[_Union[SlotStatus, str]] = ..., block_ids: _Optional[bytes] = ..., sealed_hashes: _Optional[bytes] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., prefill_target: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., paused: bool = ..., scheduler_meta: _Optional[bytes] = ..., withdrawn: bool = ..., group_tables: _Optional[_Iterable[_Union[GroupBlocks, _Mapping]]] = ..., leg: _Optional[int] = ..., transfer: _Optional[_Union[TransferRef, _Mapping]] = ..., frozen_status: _Optional[_Union[SlotStatus, str]] = ..., lane: _Optional[int] = ...) -> None: ...

class TransferRef(_message.Message):
    __slots__ = ("transfer", "other")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    other: WorkerRef
    def __init__(self, transfer: _Optional[int] = ..., other: _Optional[_Union[WorkerRef, _Mapping]] = ...) -> None: ...

class ModelRunnerOutput(_message.Message):
    __slots__ = ("step_id", "exception_slots", "exception_counts", "decode_counts", "not_run_slots", "not_run_reasons", "finished_slots", "finished_reasons", "finished_counts", "sealed_slots", "sealed_indexes", "sealed_hashes", "num_decode_rows", "num_prefill_tokens", "draft_slots", "draft_limits", "timings", "num_draft_tokens", "num_accepted_tokens", "withdrawn_slots", "checkpoint_positions", "mask_slots", "mask_us")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DECODE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    NOT_RUN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NOT_RUN_REASONS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_REASONS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_INDEXES_FIELD_NUMBER: _ClassVar[int]
    SEALED_HASHES_FIELD_NUMBER: _ClassVar[int]
    NUM_DECODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_LIMITS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MASK_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MASK_US_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    exception_slots: bytes
    exception_counts: bytes
    decode_counts: bytes
    not_run_slots: bytes
    not_run_reasons: bytes
    finished_slots: bytes
    finished_reasons: bytes
    finished_counts: bytes
    sealed_slots: bytes
    sealed_indexes: bytes
    sealed_hashes: bytes
    num_decode_rows: int
    num_prefill_tokens: int
    draft_slots: bytes
    draft_limits: bytes
    timings: StepTimings
    num_draft_tokens: int
    num_accepted_tokens: int
    withdrawn_slots: bytes
    checkpoint_positions: bytes
    mask_slots: bytes
    mask_us: bytes
    def __init__(self, step_id: _Optional[int] = ..., exception_slots: _Optional[bytes] = ..., exception_counts: _Optional[bytes] = ..., decode_counts: _Optional[bytes] = ..., not_run_slots: _Optional[bytes] = ..., not_run_reasons: _Optional[bytes] = ..., finished_slots: _Optional[bytes] = ..., finished_reasons: _Optional[bytes] = ..., finished_counts: _Optional[bytes] = ..., sealed_slots: _Optional[bytes] = ..., sealed_indexes: _Optional[bytes] = ..., sealed_hashes: _Optional[bytes] = ..., num_decode_rows: _Optional[int] = ..., num_prefill_tokens: _Optional[int] = ..., draft_slots: _Optional[bytes] = ..., draft_limits: _Optional[bytes] = ..., timings: _Optional[_Union[StepTimings, _Mapping]] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., withdrawn_slots: _Optional[bytes] = ..., checkpoint_positions: _Optional[bytes] = ..., mask_slots: _Optional[bytes] = ..., mask_us: _Optional[bytes] = ...) -> None: ...

class StepTimings(_message.Message):
    __slots__ = ("queued_us", "prepare_us", "execute_us", "commit_us", "masks_us")
    QUEUED_US_FIELD_NUMBER: _ClassVar[int]
    PREPARE_US_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_US_FIELD_NUMBER: _ClassVar[int]
    COMMIT_US_FIELD_NUMBER: _ClassVar[int]
    MASKS_US_FIELD_NUMBER: _ClassVar[int]
    queued_us: int
    prepare_us: int
    execute_us: int
    commit_us: int
    masks_us: int
    def __init__(self, queued_us: _Optional[int] = ..., prepare_us: _Optional[int] = ..., execute_us: _Optional[int] = ..., commit_us: _Optional[int] = ..., masks_us: _Optional[int] = ...) -> None: ...

class WorkerEvent(_message.Message):
    __slots__ = ("grammar_ready", "grammar_failed", "fence_ended", "frontend_lost", "alive", "draining", "leaving", "import_ready", "import_ended", "disk_news", "disk_loads_ended", "disk_stores_ended", "block_pull_ended")
    GRAMMAR_READY_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FAILED_FIELD_NUMBER: _ClassVar[int]
    FENCE_ENDED_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_LOST_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    IMPORT_READY_FIELD_NUMBER: _ClassVar[int]
    IMPORT_ENDED_FIELD_NUMBER: _ClassVar[int]
    DISK_NEWS_FIELD_NUMBER: _ClassVar[int]
    DISK_LOADS_ENDED_FIELD_NUMBER: _ClassVar[int]
    DISK_STORES_ENDED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_PULL_ENDED_FIELD_NUMBER: _ClassVar[int]
    grammar_ready: GrammarReady
    grammar_failed: GrammarFailed
    fence_ended: FenceEnded
    frontend_lost: FrontendLost
    alive: Alive
    draining: Draining
    leaving: Leaving
    import_ready: ImportReady
    import_ended: ImportEnded
    disk_news: DiskNews
    disk_loads_ended: DiskLoadsEnded
    disk_stores_ended: DiskStoresEnded
    block_pull_ended: BlockPullEnded
    def __init__(self, grammar_ready: _Optional[_Union[GrammarReady, _Mapping]] = ..., grammar_failed: _Optional[_Union[GrammarFailed, _Mapping]] = ..., fence_ended: _Optional[_Union[FenceEnded, _Mapping]] = ..., frontend_lost: _Optional[_Union[FrontendLost, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., import_ready: _Optional[_Union[ImportReady, _Mapping]] = ..., import_ended: _Optional[_Union[ImportEnded, _Mapping]] = ..., disk_news: _Optional[_Union[DiskNews, _Mapping]] = ..., disk_loads_ended: _Optional[_Union[DiskLoadsEnded, _Mapping]] = ..., disk_stores_ended: _Optional[_Union[DiskStoresEnded, _Mapping]] = ..., block_pull_ended: _Optional[_Union[BlockPullEnded, _Mapping]] = ...) -> None: ...

class ImportReady(_message.Message):
    __slots__ = ("slot", "transfer")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    slot: int
    transfer: int
    def __init__(self, slot: _Optional[int] = ..., transfer: _Optional[int] = ...) -> None: ...

class ImportEnded(_message.Message):
    __slots__ = ("slot", "transfer", "error", "num_computed_tokens", "num_output_tokens", "sealed_hashes")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEALED_HASHES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    transfer: int
    error: _generation_pb2.Error
    num_computed_tokens: int
    num_output_tokens: int
    sealed_hashes: bytes
    def __init__(self, slot: _Optional[int] = ..., transfer: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., sealed_hashes: _Optional[bytes] = ...) -> None: ...

class DiskNews(_message.Message):
    __slots__ = ("begins", "groups", "is_off", "base_us", "token_ns")
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IS_OFF_FIELD_NUMBER: _ClassVar[int]
    BASE_US_FIELD_NUMBER: _ClassVar[int]
    TOKEN_NS_FIELD_NUMBER: _ClassVar[int]
    begins: bool
    groups: _containers.RepeatedCompositeFieldContainer[DiskGroup]
    is_off: bool
    base_us: int
    token_ns: int
    def __init__(self, begins: bool = ..., groups: _Optional[_Iterable[_Union[DiskGroup, _Mapping]]] = ..., is_off: bool = ..., base_us: _Optional[int] = ..., token_ns: _Optional[int] = ...) -> None: ...

class DiskGroup(_message.Message):
    __slots__ = ("group", "added", "removed", "block_ns")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_NS_FIELD_NUMBER: _ClassVar[int]
    group: int
    added: bytes
    removed: bytes
    block_ns: int
    def __init__(self, group: _Optional[int] = ..., added: _Optional[bytes] = ..., removed: _Optional[bytes] = ..., block_ns: _Optional[int] = ...) -> None: ...

class DiskLoadsEnded(_message.Message):
    __slots__ = ("step_id", "lost")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    lost: bytes
    def __init__(self, step_id: _Optional[int] = ..., lost: _Optional[bytes] = ...) -> None: ...

class DiskStoresEnded(_message.Message):
    __slots__ = ("step_id",)
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    def __init__(self, step_id: _Optional[int] = ...) -> None: ...

class BlockPullEnded(_message.Message):
    __slots__ = ("step_id", "error", "duration_us", "block_ns")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_US_FIELD_NUMBER: _ClassVar[int]
    BLOCK_NS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    error: _generation_pb2.Error
    duration_us: int
    block_ns: bytes
    def __init__(self, step_id: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., duration_us: _Optional[int] = ..., block_ns: _Optional[bytes] = ...) -> None: ...

class GrammarReady(_message.Message):
    __slots__ = ("slot", "ref")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    slot: int
    ref: RequestRef
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class GrammarFailed(_message.Message):
    __slots__ = ("slot", "error", "ref")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    slot: int
    error: _generation_pb2.Error
    ref: RequestRef
    def __init__(self, slot: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., ref: _Optional[_Union[RequestRef, _Mapping]] = ...) -> None: ...

class FenceEnded(_message.Message):
    __slots__ = ("fence", "error")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    fence: int
    error: _generation_pb2.Error
    def __init__(self, fence: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ...) -> None: ...

class FrontendLost(_message.Message):
    __slots__ = ("frontend_instance",)
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    frontend_instance: str
    def __init__(self, frontend_instance: _Optional[str] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason", "has_crashed")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_CRASHED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    has_crashed: bool
    def __init__(self, reason: _Optional[str] = ..., has_crashed: bool = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ("oldest_step_ms", "step_id", "compiles")
    OLDEST_STEP_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    COMPILES_FIELD_NUMBER: _ClassVar[int]
    oldest_step_ms: int
    step_id: int
    compiles: bool
    def __init__(self, oldest_step_ms: _Optional[int] = ..., step_id: _Optional[int] = ..., compiles: bool = ...) -> None: ...

class AttachWorkerResponse(_message.Message):
    __slots__ = ("new_requests", "steps", "scheduler_epoch", "scheduler_instance", "loan", "protocol", "drains", "hears_nothing")
    NEW_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LOAN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    HEARS_NOTHING_FIELD_NUMBER: _ClassVar[int]
    new_requests: _containers.RepeatedCompositeFieldContainer[NewRequestData]
    steps: _containers.RepeatedCompositeFieldContainer[SchedulerOutput]
    scheduler_epoch: int
    scheduler_instance: str
    loan: BlockLoan
    protocol: _generation_pb2.ProtocolVersions
    drains: bool
    hears_nothing: bool
    def __init__(self, new_requests: _Optional[_Iterable[_Union[NewRequestData, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[SchedulerOutput, _Mapping]]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ..., loan: _Optional[_Union[BlockLoan, _Mapping]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., drains: bool = ..., hears_nothing: bool = ...) -> None: ...

class BlockLoan(_message.Message):
    __slots__ = ("block_ids", "groups")
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    block_ids: bytes
    groups: _containers.RepeatedCompositeFieldContainer[GroupBlocks]
    def __init__(self, block_ids: _Optional[bytes] = ..., groups: _Optional[_Iterable[_Union[GroupBlocks, _Mapping]]] = ...) -> None: ...

class NewRequestData(_message.Message):
    __slots__ = ("slot", "ref", "frontend_instance", "chain_hash", "scheduler_meta", "payload", "traceparent", "tracestate", "max_tokens", "max_draft_tokens", "kind", "num_known_tokens", "import_from", "leg", "account")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_HASH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_META_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUM_KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMPORT_FROM_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    ref: RequestRef
    frontend_instance: str
    chain_hash: bytes
    scheduler_meta: bytes
    payload: bytes
    traceparent: str
    tracestate: str
    max_tokens: int
    max_draft_tokens: int
    kind: _generation_pb2.RequestKind
    num_known_tokens: int
    import_from: ImportFrom
    leg: int
    account: int
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[RequestRef, _Mapping]] = ..., frontend_instance: _Optional[str] = ..., chain_hash: _Optional[bytes] = ..., scheduler_meta: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., max_tokens: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., kind: _Optional[_Union[_generation_pb2.RequestKind, str]] = ..., num_known_tokens: _Optional[int] = ..., import_from: _Optional[_Union[ImportFrom, _Mapping]] = ..., leg: _Optional[int] = ..., account: _Optional[int] = ...) -> None: ...

class ImportFrom(_message.Message):
    __slots__ = ("transfer", "key", "source", "address")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    key: bytes
    source: WorkerRef
    address: str
    def __init__(self, transfer: _Optional[int] = ..., key: _Optional[bytes] = ..., source: _Optional[_Union[WorkerRef, _Mapping]] = ..., address: _Optional[str] = ...) -> None: ...

class SchedulerOutput(_message.Message):
    __slots__ = ("step_id", "scheduler_epoch", "scheduled_new_reqs", "scheduled_cached_reqs", "preempted_slots", "finished_slots", "paused_slots", "unpaused_slots", "draft_slots", "draft_limits", "block_copies", "side_copies", "is_solo", "aside_slots", "may_be_skipped", "checkpoints", "handoffs", "disk", "lane_slots", "lanes", "pulls", "limit_ms")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_NEW_REQS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_CACHED_REQS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    UNPAUSED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_LIMITS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COPIES_FIELD_NUMBER: _ClassVar[int]
    SIDE_COPIES_FIELD_NUMBER: _ClassVar[int]
    IS_SOLO_FIELD_NUMBER: _ClassVar[int]
    ASIDE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    HANDOFFS_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    LANE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    scheduler_epoch: int
    scheduled_new_reqs: ScheduledNewReqs
    scheduled_cached_reqs: CachedRequestData
    preempted_slots: bytes
    finished_slots: bytes
    paused_slots: bytes
    unpaused_slots: bytes
    draft_slots: bytes
    draft_limits: bytes
    block_copies: BlockCopies
    side_copies: BlockCopies
    is_solo: bool
    aside_slots: bytes
    may_be_skipped: bool
    checkpoints: Checkpoints
    handoffs: Handoffs
    disk: DiskOrders
    lane_slots: bytes
    lanes: bytes
    pulls: BlockPulls
    limit_ms: int
    def __init__(self, step_id: _Optional[int] = ..., scheduler_epoch: _Optional[int] = ..., scheduled_new_reqs: _Optional[_Union[ScheduledNewReqs, _Mapping]] = ..., scheduled_cached_reqs: _Optional[_Union[CachedRequestData, _Mapping]] = ..., preempted_slots: _Optional[bytes] = ..., finished_slots: _Optional[bytes] = ..., paused_slots: _Optional[bytes] = ..., unpaused_slots: _Optional[bytes] = ..., draft_slots: _Optional[bytes] = ..., draft_limits: _Optional[bytes] = ..., block_copies: _Optional[_Union[BlockCopies, _Mapping]] = ..., side_copies: _Optional[_Union[BlockCopies, _Mapping]] = ..., is_solo: bool = ..., aside_slots: _Optional[bytes] = ..., may_be_skipped: bool = ..., checkpoints: _Optional[_Union[Checkpoints, _Mapping]] = ..., handoffs: _Optional[_Union[Handoffs, _Mapping]] = ..., disk: _Optional[_Union[DiskOrders, _Mapping]] = ..., lane_slots: _Optional[bytes] = ..., lanes: _Optional[bytes] = ..., pulls: _Optional[_Union[BlockPulls, _Mapping]] = ..., limit_ms: _Optional[int] = ...) -> None: ...

class BlockPulls(_message.Message):
    __slots__ = ("pull", "exports", "ended_exports")
    PULL_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_EXPORTS_FIELD_NUMBER: _ClassVar[int]
    pull: BlockPull
    exports: _containers.RepeatedCompositeFieldContainer[BlockExport]
    ended_exports: bytes
    def __init__(self, pull: _Optional[_Union[BlockPull, _Mapping]] = ..., exports: _Optional[_Iterable[_Union[BlockExport, _Mapping]]] = ..., ended_exports: _Optional[bytes] = ...) -> None: ...

class BlockPull(_message.Message):
    __slots__ = ("number", "key", "source", "address", "groups", "block_ids", "most_us")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    MOST_US_FIELD_NUMBER: _ClassVar[int]
    number: int
    key: bytes
    source: WorkerRef
    address: str
    groups: bytes
    block_ids: bytes
    most_us: int
    def __init__(self, number: _Optional[int] = ..., key: _Optional[bytes] = ..., source: _Optional[_Union[WorkerRef, _Mapping]] = ..., address: _Optional[str] = ..., groups: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ..., most_us: _Optional[int] = ...) -> None: ...

class BlockExport(_message.Message):
    __slots__ = ("number", "key", "target", "groups", "block_ids")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    key: bytes
    target: WorkerRef
    groups: bytes
    block_ids: bytes
    def __init__(self, number: _Optional[int] = ..., key: _Optional[bytes] = ..., target: _Optional[_Union[WorkerRef, _Mapping]] = ..., groups: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ...) -> None: ...

class Handoffs(_message.Message):
    __slots__ = ("import_starts", "committed_slots", "export_slots", "export_transfers", "export_targets", "export_keys", "kept_slots", "frozen_slots", "thawed_slots", "thawed_legs", "committed_legs")
    IMPORT_STARTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EXPORT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EXPORT_TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    EXPORT_TARGETS_FIELD_NUMBER: _ClassVar[int]
    EXPORT_KEYS_FIELD_NUMBER: _ClassVar[int]
    KEPT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    THAWED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    THAWED_LEGS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LEGS_FIELD_NUMBER: _ClassVar[int]
    import_starts: ImportStarts
    committed_slots: bytes
    export_slots: bytes
    export_transfers: bytes
    export_targets: _containers.RepeatedCompositeFieldContainer[WorkerRef]
    export_keys: _containers.RepeatedScalarFieldContainer[bytes]
    kept_slots: bytes
    frozen_slots: bytes
    thawed_slots: bytes
    thawed_legs: bytes
    committed_legs: bytes
    def __init__(self, import_starts: _Optional[_Union[ImportStarts, _Mapping]] = ..., committed_slots: _Optional[bytes] = ..., export_slots: _Optional[bytes] = ..., export_transfers: _Optional[bytes] = ..., export_targets: _Optional[_Iterable[_Union[WorkerRef, _Mapping]]] = ..., export_keys: _Optional[_Iterable[bytes]] = ..., kept_slots: _Optional[bytes] = ..., frozen_slots: _Optional[bytes] = ..., thawed_slots: _Optional[bytes] = ..., thawed_legs: _Optional[bytes] = ..., committed_legs: _Optional[bytes] = ...) -> None: ...

class ImportStarts(_message.Message):
    __slots__ = ("slots", "block_counts", "block_ids", "num_found", "groups")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_FOUND_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    block_counts: bytes
    block_ids: bytes
    num_found: bytes
    groups: _containers.RepeatedCompositeFieldContainer[GroupStarts]
    def __init__(self, slots: _Optional[bytes] = ..., block_counts: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ..., num_found: _Optional[bytes] = ..., groups: _Optional[_Iterable[_Union[GroupStarts, _Mapping]]] = ...) -> None: ...

class DiskOrders(_message.Message):
    __slots__ = ("loads", "most_us", "stores", "drops", "drops_all")
    LOADS_FIELD_NUMBER: _ClassVar[int]
    MOST_US_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    DROPS_ALL_FIELD_NUMBER: _ClassVar[int]
    loads: NamedBlocks
    most_us: int
    stores: NamedBlocks
    drops: bytes
    drops_all: bool
    def __init__(self, loads: _Optional[_Union[NamedBlocks, _Mapping]] = ..., most_us: _Optional[int] = ..., stores: _Optional[_Union[NamedBlocks, _Mapping]] = ..., drops: _Optional[bytes] = ..., drops_all: bool = ...) -> None: ...

class NamedBlocks(_message.Message):
    __slots__ = ("groups", "block_ids", "hashes")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    groups: bytes
    block_ids: bytes
    hashes: bytes
    def __init__(self, groups: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ..., hashes: _Optional[bytes] = ...) -> None: ...

class Checkpoints(_message.Message):
    __slots__ = ("slots", "checkpoint_ids", "positions")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_IDS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    checkpoint_ids: bytes
    positions: bytes
    def __init__(self, slots: _Optional[bytes] = ..., checkpoint_ids: _Optional[bytes] = ..., positions: _Optional[bytes] = ...) -> None: ...

class ScheduledNewReqs(_message.Message):
    __slots__ = ("slots", "block_counts", "block_ids", "num_computed_tokens", "num_scheduled_tokens", "groups", "from_checkpoints")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_SCHEDULED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    FROM_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    block_counts: bytes
    block_ids: bytes
    num_computed_tokens: bytes
    num_scheduled_tokens: bytes
    groups: _containers.RepeatedCompositeFieldContainer[GroupStarts]
    from_checkpoints: bytes
    def __init__(self, slots: _Optional[bytes] = ..., block_counts: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ..., num_computed_tokens: _Optional[bytes] = ..., num_scheduled_tokens: _Optional[bytes] = ..., groups: _Optional[_Iterable[_Union[GroupStarts, _Mapping]]] = ..., from_checkpoints: _Optional[bytes] = ...) -> None: ...

class GroupStarts(_message.Message):
    __slots__ = ("firsts", "block_counts", "block_ids")
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    firsts: bytes
    block_counts: bytes
    block_ids: bytes
    def __init__(self, firsts: _Optional[bytes] = ..., block_counts: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ...) -> None: ...

class CachedRequestData(_message.Message):
    __slots__ = ("new_block_slots", "new_block_ids", "chunk_slots", "chunk_starts", "chunk_lengths", "resumed", "new_block_groups")
    NEW_BLOCK_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_STARTS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCK_GROUPS_FIELD_NUMBER: _ClassVar[int]
    new_block_slots: bytes
    new_block_ids: bytes
    chunk_slots: bytes
    chunk_starts: bytes
    chunk_lengths: bytes
    resumed: ScheduledNewReqs
    new_block_groups: bytes
    def __init__(self, new_block_slots: _Optional[bytes] = ..., new_block_ids: _Optional[bytes] = ..., chunk_slots: _Optional[bytes] = ..., chunk_starts: _Optional[bytes] = ..., chunk_lengths: _Optional[bytes] = ..., resumed: _Optional[_Union[ScheduledNewReqs, _Mapping]] = ..., new_block_groups: _Optional[bytes] = ...) -> None: ...

class BlockCopies(_message.Message):
    __slots__ = ("source_block_ids", "target_block_ids", "fence", "groups")
    SOURCE_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    source_block_ids: bytes
    target_block_ids: bytes
    fence: int
    groups: bytes
    def __init__(self, source_block_ids: _Optional[bytes] = ..., target_block_ids: _Optional[bytes] = ..., fence: _Optional[int] = ..., groups: _Optional[bytes] = ...) -> None: ...

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
    worker: WorkerRef
    exit: WorkerExit
    reason: str
    step_id: int
    def __init__(self, worker: _Optional[_Union[WorkerRef, _Mapping]] = ..., exit: _Optional[_Union[WorkerExit, str]] = ..., reason: _Optional[str] = ..., step_id: _Optional[int] = ...) -> None: ...

class ReportWorkerExitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
