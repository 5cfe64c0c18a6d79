from signalbox.v1 import shared_pb2 as _shared_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_HEALTH_UNSPECIFIED: _ClassVar[WorkerHealth]
    WORKER_HEALTH_GOOD: _ClassVar[WorkerHealth]
    WORKER_HEALTH_SILENT: _ClassVar[WorkerHealth]
    WORKER_HEALTH_HUNG: _ClassVar[WorkerHealth]
    WORKER_HEALTH_SLOW: _ClassVar[WorkerHealth]
    WORKER_HEALTH_AWAY: _ClassVar[WorkerHealth]

class RequestStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATUS_UNSPECIFIED: _ClassVar[RequestStatus]
    REQUEST_STATUS_WAITING: _ClassVar[RequestStatus]
    REQUEST_STATUS_WAITING_FOR_FSM: _ClassVar[RequestStatus]
    REQUEST_STATUS_WAITING_FOR_REMOTE_KVS: _ClassVar[RequestStatus]
    REQUEST_STATUS_RUNNING: _ClassVar[RequestStatus]
    REQUEST_STATUS_PREEMPTED: _ClassVar[RequestStatus]

class WaitReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAIT_REASON_UNSPECIFIED: _ClassVar[WaitReason]
    WAIT_REASON_RUNS: _ClassVar[WaitReason]
    WAIT_REASON_NEXT_STEP: _ClassVar[WaitReason]
    WAIT_REASON_NO_WORKER: _ClassVar[WaitReason]
    WAIT_REASON_WORKER_AWAY: _ClassVar[WaitReason]
    WAIT_REASON_CLASS_SUSPENDED: _ClassVar[WaitReason]
    WAIT_REASON_TENANT_LIMIT: _ClassVar[WaitReason]
    WAIT_REASON_OTHERS_AHEAD: _ClassVar[WaitReason]
    WAIT_REASON_NO_PLACE: _ClassVar[WaitReason]
    WAIT_REASON_NO_SLOT: _ClassVar[WaitReason]
    WAIT_REASON_NO_BLOCKS: _ClassVar[WaitReason]
    WAIT_REASON_TOKEN_BUDGET: _ClassVar[WaitReason]
    WAIT_REASON_GRAMMAR: _ClassVar[WaitReason]
    WAIT_REASON_GRAMMAR_TURN: _ClassVar[WaitReason]
    WAIT_REASON_PREFIX: _ClassVar[WaitReason]
    WAIT_REASON_HOST_COPIES: _ClassVar[WaitReason]
    WAIT_REASON_AFFINITY: _ClassVar[WaitReason]
    WAIT_REASON_CLIENT_PAUSED: _ClassVar[WaitReason]
    WAIT_REASON_DISPLACED: _ClassVar[WaitReason]
    WAIT_REASON_PREEMPTED: _ClassVar[WaitReason]
    WAIT_REASON_HANDED_OVER: _ClassVar[WaitReason]

class BoardPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BOARD_PHASE_UNSPECIFIED: _ClassVar[BoardPhase]
    BOARD_PHASE_PREPARING: _ClassVar[BoardPhase]
    BOARD_PHASE_PREFILL: _ClassVar[BoardPhase]
    BOARD_PHASE_DECODE: _ClassVar[BoardPhase]
    BOARD_PHASE_PREEMPTED: _ClassVar[BoardPhase]
    BOARD_PHASE_HELD: _ClassVar[BoardPhase]
    BOARD_PHASE_PAUSED: _ClassVar[BoardPhase]
    BOARD_PHASE_DISPLACED: _ClassVar[BoardPhase]
    BOARD_PHASE_SUSPENDED: _ClassVar[BoardPhase]
    BOARD_PHASE_FROZEN: _ClassVar[BoardPhase]
WORKER_HEALTH_UNSPECIFIED: WorkerHealth
WORKER_HEALTH_GOOD: WorkerHealth
WORKER_HEALTH_SILENT: WorkerHealth
WORKER_HEALTH_HUNG: WorkerHealth
WORKER_HEALTH_SLOW: WorkerHealth
WORKER_HEALTH_AWAY: WorkerHealth
REQUEST_STATUS_UNSPECIFIED: RequestStatus
REQUEST_STATUS_WAITING: RequestStatus
REQUEST_STATUS_WAITING_FOR_FSM: RequestStatus
REQUEST_STATUS_WAITING_FOR_REMOTE_KVS: RequestStatus
REQUEST_STATUS_RUNNING: RequestStatus
REQUEST_STATUS_PREEMPTED: RequestStatus
WAIT_REASON_UNSPECIFIED: WaitReason
WAIT_REASON_RUNS: WaitReason
WAIT_REASON_NEXT_STEP: WaitReason
WAIT_REASON_NO_WORKER: WaitReason
WAIT_REASON_WORKER_AWAY: WaitReason
WAIT_REASON_CLASS_SUSPENDED: WaitReason
WAIT_REASON_TENANT_LIMIT: WaitReason
WAIT_REASON_OTHERS_AHEAD: WaitReason
WAIT_REASON_NO_PLACE: WaitReason
WAIT_REASON_NO_SLOT: WaitReason
WAIT_REASON_NO_BLOCKS: WaitReason
WAIT_REASON_TOKEN_BUDGET: WaitReason
WAIT_REASON_GRAMMAR: WaitReason
WAIT_REASON_GRAMMAR_TURN: WaitReason
WAIT_REASON_PREFIX: WaitReason
WAIT_REASON_HOST_COPIES: WaitReason
WAIT_REASON_AFFINITY: WaitReason
WAIT_REASON_CLIENT_PAUSED: WaitReason
WAIT_REASON_DISPLACED: WaitReason
WAIT_REASON_PREEMPTED: WaitReason
WAIT_REASON_HANDED_OVER: WaitReason
BOARD_PHASE_UNSPECIFIED: BoardPhase
BOARD_PHASE_PREPARING: BoardPhase
BOARD_PHASE_PREFILL: BoardPhase
BOARD_PHASE_DECODE: BoardPhase
BOARD_PHASE_PREEMPTED: BoardPhase
BOARD_PHASE_HELD: BoardPhase
BOARD_PHASE_PAUSED: BoardPhase
BOARD_PHASE_DISPLACED: BoardPhase
BOARD_PHASE_SUSPENDED: BoardPhase
BOARD_PHASE_FROZEN: BoardPhase

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("scheduler_epoch", "num_waiting", "workers", "num_frontends", "safe_mode", "scheduler_instance")
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_FRONTENDS_FIELD_NUMBER: _ClassVar[int]
    SAFE_MODE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    scheduler_epoch: int
    num_waiting: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    num_frontends: int
    safe_mode: SafeModeStatus
    scheduler_instance: str
    def __init__(self, scheduler_epoch: _Optional[int] = ..., num_waiting: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., num_frontends: _Optional[int] = ..., safe_mode: _Optional[_Union[SafeModeStatus, _Mapping]] = ..., scheduler_instance: _Optional[str] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "address", "model", "attached", "num_running", "num_preempted", "num_blocks", "num_free_blocks", "num_cached_blocks", "num_inflight_steps", "num_steps", "num_preemptions", "num_prefix_hit_tokens", "num_prefix_query_tokens", "num_output_tokens", "draining", "num_draft_tokens", "num_accepted_tokens", "health", "worker_instance", "num_lent_blocks", "num_unheard_by", "groups", "checkpoints", "num_requests", "role", "disk", "num_ranks")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_INFLIGHT_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_QUERY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NUM_LENT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_UNHEARD_BY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    model: str
    attached: bool
    num_running: int
    num_preempted: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_inflight_steps: int
    num_steps: int
    num_preemptions: int
    num_prefix_hit_tokens: int
    num_prefix_query_tokens: int
    num_output_tokens: int
    draining: bool
    num_draft_tokens: int
    num_accepted_tokens: int
    health: WorkerHealth
    worker_instance: str
    num_lent_blocks: int
    num_unheard_by: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    checkpoints: CheckpointStatus
    num_requests: int
    role: _shared_pb2.WorkerRole
    disk: DiskStatus
    num_ranks: int
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[str] = ..., attached: bool = ..., num_running: _Optional[int] = ..., num_preempted: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_cached_blocks: _Optional[int] = ..., num_inflight_steps: _Optional[int] = ..., num_steps: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., num_prefix_hit_tokens: _Optional[int] = ..., num_prefix_query_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., draining: bool = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., health: _Optional[_Union[WorkerHealth, str]] = ..., worker_instance: _Optional[str] = ..., num_lent_blocks: _Optional[int] = ..., num_unheard_by: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., checkpoints: _Optional[_Union[CheckpointStatus, _Mapping]] = ..., num_requests: _Optional[int] = ..., role: _Optional[_Union[_shared_pb2.WorkerRole, str]] = ..., disk: _Optional[_Union[DiskStatus, _Mapping]] = ..., num_ranks: _Optional[int] = ...) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("kind", "reach", "num_blocks", "num_free_blocks", "num_cached_blocks", "num_host_blocks", "num_used_host_blocks")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    kind: _shared_pb2.BlockGroupKind
    reach: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_host_blocks: int
    num_used_host_blocks: int
    def __init__(self, kind: _Optional[_Union[_shared_pb2.BlockGroupKind, str]] = ..., reach: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_cached_blocks: _Optional[int] = ..., num_host_blocks: _Optional[int] = ..., num_used_host_blocks: _Optional[int] = ...) -> None: ...

class DiskStatus(_message.Message):
    __slots__ = ("num_blocks", "is_off", "num_hit_tokens", "num_loaded_blocks", "num_lost_blocks", "num_stored_blocks")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    IS_OFF_FIELD_NUMBER: _ClassVar[int]
    NUM_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOADED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_STORED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    is_off: bool
    num_hit_tokens: int
    num_loaded_blocks: int
    num_lost_blocks: int
    num_stored_blocks: int
    def __init__(self, num_blocks: _Optional[int] = ..., is_off: bool = ..., num_hit_tokens: _Optional[int] = ..., num_loaded_blocks: _Optional[int] = ..., num_lost_blocks: _Optional[int] = ..., num_stored_blocks: _Optional[int] = ...) -> None: ...

class CheckpointStatus(_message.Message):
    __slots__ = ("boundary", "num_checkpoints", "num_free_checkpoints", "num_cached_checkpoints", "num_made", "num_used", "num_evicted", "num_host_checkpoints", "num_used_host_checkpoints")
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    NUM_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_MADE_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_FIELD_NUMBER: _ClassVar[int]
    NUM_EVICTED_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_HOST_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    boundary: int
    num_checkpoints: int
    num_free_checkpoints: int
    num_cached_checkpoints: int
    num_made: int
    num_used: int
    num_evicted: int
    num_host_checkpoints: int
    num_used_host_checkpoints: int
    def __init__(self, boundary: _Optional[int] = ..., num_checkpoints: _Optional[int] = ..., num_free_checkpoints: _Optional[int] = ..., num_cached_checkpoints: _Optional[int] = ..., num_made: _Optional[int] = ..., num_used: _Optional[int] = ..., num_evicted: _Optional[int] = ..., num_host_checkpoints: _Optional[int] = ..., num_used_host_checkpoints: _Optional[int] = ...) -> None: ...

class ExplainRequestRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ExplainRequestResponse(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RequestExplanation]
    def __init__(self, requests: _Optional[_Iterable[_Union[RequestExplanation, _Mapping]]] = ...) -> None: ...

class RequestExplanation(_message.Message):
    __slots__ = ("ref", "frontend_instance", "model", "tenant", "priority", "status", "reason", "sentence", "age_ms", "waiting_ms", "num_ahead", "more_ahead", "ahead", "turns", "num_prompt_tokens", "worker_id", "num_cached_tokens", "num_computed_tokens", "num_output_tokens", "max_output_tokens", "num_blocks", "num_preemptions", "num_displacements")
    REF_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_AHEAD_FIELD_NUMBER: _ClassVar[int]
    MORE_AHEAD_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_DISPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    ref: _shared_pb2.RequestRef
    frontend_instance: str
    model: str
    tenant: str
    priority: int
    status: RequestStatus
    reason: WaitReason
    sentence: str
    age_ms: int
    waiting_ms: int
    num_ahead: int
    more_ahead: bool
    ahead: _containers.RepeatedCompositeFieldContainer[WaitingGroup]
    turns: _containers.RepeatedCompositeFieldContainer[WaitingGroup]
    num_prompt_tokens: int
    worker_id: str
    num_cached_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    max_output_tokens: int
    num_blocks: int
    num_preemptions: int
    num_displacements: int
    def __init__(self, ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., frontend_instance: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ..., status: _Optional[_Union[RequestStatus, str]] = ..., reason: _Optional[_Union[WaitReason, str]] = ..., sentence: _Optional[str] = ..., age_ms: _Optional[int] = ..., waiting_ms: _Optional[int] = ..., num_ahead: _Optional[int] = ..., more_ahead: bool = ..., ahead: _Optional[_Iterable[_Union[WaitingGroup, _Mapping]]] = ..., turns: _Optional[_Iterable[_Union[WaitingGroup, _Mapping]]] = ..., num_prompt_tokens: _Optional[int] = ..., worker_id: _Optional[str] = ..., num_cached_tokens: _Optional[int] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., num_displacements: _Optional[int] = ...) -> None: ...

class WaitingGroup(_message.Message):
    __slots__ = ("priority", "tenant", "num_requests")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    priority: int
    tenant: str
    num_requests: int
    def __init__(self, priority: _Optional[int] = ..., tenant: _Optional[str] = ..., num_requests: _Optional[int] = ...) -> None: ...

class ResetPrefixCacheRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetPrefixCacheResponse(_message.Message):
    __slots__ = ("num_blocks",)
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    def __init__(self, num_blocks: _Optional[int] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker_id", "resume")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    resume: bool
    def __init__(self, worker_id: _Optional[str] = ..., resume: bool = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ("num_requests",)
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    num_requests: int
    def __init__(self, num_requests: _Optional[int] = ...) -> None: ...

class SetWorkerRoleRequest(_message.Message):
    __slots__ = ("worker_id", "role")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    role: _shared_pb2.WorkerRole
    def __init__(self, worker_id: _Optional[str] = ..., role: _Optional[_Union[_shared_pb2.WorkerRole, str]] = ...) -> None: ...

class SetWorkerRoleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveRequestRequest(_message.Message):
    __slots__ = ("request_id", "worker_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    worker_id: str
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ...) -> None: ...

class MoveRequestResponse(_message.Message):
    __slots__ = ("source_worker_id",)
    SOURCE_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    source_worker_id: str
    def __init__(self, source_worker_id: _Optional[str] = ...) -> None: ...

class SafeModeStatus(_message.Message):
    __slots__ = ("operator_level", "budget_level", "num_waiting", "num_paused", "burn_rate")
    OPERATOR_LEVEL_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_PAUSED_FIELD_NUMBER: _ClassVar[int]
    BURN_RATE_FIELD_NUMBER: _ClassVar[int]
    operator_level: int
    budget_level: int
    num_waiting: int
    num_paused: int
    burn_rate: float
    def __init__(self, operator_level: _Optional[int] = ..., budget_level: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_paused: _Optional[int] = ..., burn_rate: _Optional[float] = ...) -> None: ...

class SetSafeModeRequest(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: int
    def __init__(self, level: _Optional[int] = ...) -> None: ...

class SetSafeModeResponse(_message.Message):
    __slots__ = ("safe_mode",)
    SAFE_MODE_FIELD_NUMBER: _ClassVar[int]
    safe_mode: SafeModeStatus
    def __init__(self, safe_mode: _Optional[_Union[SafeModeStatus, _Mapping]] = ...) -> None: ...

class LiftSafeModeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LiftSafeModeResponse(_message.Message):
    __slots__ = ("safe_mode",)
    SAFE_MODE_FIELD_NUMBER: _ClassVar[int]
    safe_mode: SafeModeStatus
    def __init__(self, safe_mode: _Optional[_Union[SafeModeStatus, _Mapping]] = ...) -> None: ...

class ReloadTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadTenantsResponse(_message.Message):
    __slots__ = ("num_tenants",)
    NUM_TENANTS_FIELD_NUMBER: _ClassVar[int]
    num_tenants: int
    def __init__(self, num_tenants: _Optional[int] = ...) -> None: ...

class WatchBoardRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchBoardResponse(_message.Message):
    __slots__ = ("scheduler_epoch", "at_ms", "num_waiting", "num_frontends", "queues", "workers", "requests", "times", "safe_mode")
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_FRONTENDS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SAFE_MODE_FIELD_NUMBER: _ClassVar[int]
    scheduler_epoch: int
    at_ms: int
    num_waiting: int
    num_frontends: int
    queues: _containers.RepeatedCompositeFieldContainer[BoardQueue]
    workers: _containers.RepeatedCompositeFieldContainer[BoardWorker]
    requests: _containers.RepeatedCompositeFieldContainer[BoardRequest]
    times: BoardTimes
    safe_mode: SafeModeStatus
    def __init__(self, scheduler_epoch: _Optional[int] = ..., at_ms: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_frontends: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[BoardQueue, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[BoardWorker, _Mapping]]] = ..., requests: _Optional[_Iterable[_Union[BoardRequest, _Mapping]]] = ..., times: _Optional[_Union[BoardTimes, _Mapping]] = ..., safe_mode: _Optional[_Union[SafeModeStatus, _Mapping]] = ...) -> None: ...

class BoardQueue(_message.Message):
    __slots__ = ("priority", "tenant", "num_waiting", "oldest_ms")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    priority: int
    tenant: str
    num_waiting: int
    oldest_ms: int
    def __init__(self, priority: _Optional[int] = ..., tenant: _Optional[str] = ..., num_waiting: _Optional[int] = ..., oldest_ms: _Optional[int] = ...) -> None: ...

class BoardWorker(_message.Message):
    __slots__ = ("worker_id", "model", "attached", "draining", "num_running", "num_preempted", "num_inflight_steps", "num_blocks", "num_free_blocks", "num_cached_blocks", "num_host_blocks", "num_used_host_blocks", "cells", "blocks_per_cell", "num_steps", "num_preemptions", "num_output_tokens", "num_prefill_tokens", "num_prefix_query_tokens", "num_prefix_hit_tokens", "step_us", "model_us", "health", "num_unheard_by", "groups", "checkpoints", "role", "disk", "num_ranks")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    NUM_INFLIGHT_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_PER_CELL_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_QUERY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    MODEL_US_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    NUM_UNHEARD_BY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    model: str
    attached: bool
    draining: bool
    num_running: int
    num_preempted: int
    num_inflight_steps: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_host_blocks: int
    num_used_host_blocks: int
    cells: bytes
    blocks_per_cell: int
    num_steps: int
    num_preemptions: int
    num_output_tokens: int
    num_prefill_tokens: int
    num_prefix_query_tokens: int
    num_prefix_hit_tokens: int
    step_us: int
    model_us: int
    health: WorkerHealth
    num_unheard_by: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    checkpoints: CheckpointStatus
    role: _shared_pb2.WorkerRole
    disk: DiskStatus
    num_ranks: int
    def __init__(self, worker_id: _Optional[str] = ..., model: _Optional[str] = ..., attached: bool = ..., draining: bool = ..., num_running: _Optional[int] = ..., num_preempted: _Optional[int] = ..., num_inflight_steps: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_cached_blocks: _Optional[int] = ..., num_host_blocks: _Optional[int] = ..., num_used_host_blocks: _Optional[int] = ..., cells: _Optional[bytes] = ..., blocks_per_cell: _Optional[int] = ..., num_steps: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., num_prefill_tokens: _Optional[int] = ..., num_prefix_query_tokens: _Optional[int] = ..., num_prefix_hit_tokens: _Optional[int] = ..., step_us: _Optional[int] = ..., model_us: _Optional[int] = ..., health: _Optional[_Union[WorkerHealth, str]] = ..., num_unheard_by: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., checkpoints: _Optional[_Union[CheckpointStatus, _Mapping]] = ..., role: _Optional[_Union[_shared_pb2.WorkerRole, str]] = ..., disk: _Optional[_Union[DiskStatus, _Mapping]] = ..., num_ranks: _Optional[int] = ...) -> None: ...

class BoardRequest(_message.Message):
    __slots__ = ("request_id", "worker_id", "slot", "phase", "priority", "tenant", "num_prompt_tokens", "num_computed_tokens", "num_output_tokens", "max_output_tokens", "num_cached_tokens", "num_blocks", "num_preemptions", "age_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    worker_id: str
    slot: int
    phase: BoardPhase
    priority: int
    tenant: str
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    max_output_tokens: int
    num_cached_tokens: int
    num_blocks: int
    num_preemptions: int
    age_ms: int
    def __init__(self, request_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., slot: _Optional[int] = ..., phase: _Optional[_Union[BoardPhase, str]] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., num_cached_tokens: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class BoardTimes(_message.Message):
    __slots__ = ("first_token", "inter_token")
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INTER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    first_token: BoardPercentiles
    inter_token: BoardPercentiles
    def __init__(self, first_token: _Optional[_Union[BoardPercentiles, _Mapping]] = ..., inter_token: _Optional[_Union[BoardPercentiles, _Mapping]] = ...) -> None: ...

class BoardPercentiles(_message.Message):
    __slots__ = ("num_samples", "p50_ms", "p90_ms", "p99_ms")
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P90_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    num_samples: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    def __init__(self, num_samples: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p90_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...
