from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    model: _shared_pb2.ModelEntry
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
    role: _shared_pb2.WorkerRole
    num_ranks: int
    num_lanes: int
    pulls_blocks: bool
    hello_number: int
    step_timeout_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[_shared_pb2.ModelEntry, _Mapping]] = ..., num_slots: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_host_blocks: _Optional[int] = ..., max_num_batched_tokens: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[_generation_pb2.RequestKind, str]]] = ..., snapshot: _Optional[_Union[WorkerSnapshot, _Mapping]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[BlockGroup, _Mapping]]] = ..., reuses_no_blocks: bool = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., state_group: _Optional[_Union[StateGroup, _Mapping]] = ..., num_spine_host_blocks: _Optional[int] = ..., kv_layout: _Optional[str] = ..., role: _Optional[_Union[_shared_pb2.WorkerRole, str]] = ..., num_ranks: _Optional[int] = ..., num_lanes: _Optional[int] = ..., pulls_blocks: bool = ..., hello_number: _Optional[int] = ..., step_timeout_ms: _Optional[int] = ...) -> None: ...

class BlockGroup(_message.Message):
    __slots__ = ("kind", "reach", "num_blocks", "bytes_per_block", "num_host_blocks")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    kind: _shared_pb2.BlockGroupKind
    reach: int
    num_blocks: int
    bytes_per_block: int
    num_host_blocks: int
    def __init__(self, kind: _Optional[_Union[_shared_pb2.BlockGroupKind, str]] = ..., reach: _Optional[int] = ..., num_blocks: _Optional[int] = ..., bytes_per_block: _Optional[int] = ..., num_host_blocks: _Optional[int] = ...) -> None: ...

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
    groups_written_alone: _containers.RepeatedCompositeFieldContainer[_shared_pb2.GroupBlocks]
    num_parts: int
    def __init__(self, scheduler_epoch: _Optional[int] = ..., last_step_id: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[SlotSnapshot, _Mapping]]] = ..., scheduler_instance: _Optional[str] = ..., blocks_written_alone: _Optional[bytes] = ..., last_scheduled_step_id: _Optional[int] = ..., groups_written_alone: _Optional[_Iterable[_Union[_shared_pb2.GroupBlocks, _Mapping]]] = ..., num_parts: _Optional[int] = ...) -> None: ...

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
    ref: _shared_pb2.RequestRef
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
    group_tables: _containers.RepeatedCompositeFieldContainer[_shared_pb2.GroupBlocks]
    leg: int
    transfer: TransferRef
    frozen_status: SlotStatus
    lane: int
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., frontend_instance: _Optional[str] = ..., status: _Optional[_Union[SlotStatus, str]] = ..., block_ids: _Optional[bytes] = ..., sealed_hashes: _Optional[bytes] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., prefill_target: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., paused: bool = ..., scheduler_meta: _Optional[bytes] = ..., withdrawn: bool = ..., group_tables: _Optional[_Iterable[_Union[_shared_pb2.GroupBlocks, _Mapping]]] = ..., leg: _Optional[int] = ..., transfer: _Optional[_Union[TransferRef, _Mapping]] = ..., frozen_status: _Optional[_Union[SlotStatus, str]] = ..., lane: _Optional[int] = ...) -> None: ...

class TransferRef(_message.Message):
    __slots__ = ("transfer", "other")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    other: _shared_pb2.WorkerRef
    def __init__(self, transfer: _Optional[int] = ..., other: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ...) -> None: ...

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

class GrammarReady(_message.Message):
    __slots__ = ("slot", "ref")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    slot: int
    ref: _shared_pb2.RequestRef
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

class GrammarFailed(_message.Message):
    __slots__ = ("slot", "error", "ref")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    slot: int
    error: _generation_pb2.Error
    ref: _shared_pb2.RequestRef
    def __init__(self, slot: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ...) -> None: ...

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

class Alive(_message.Message):
    __slots__ = ("oldest_step_ms", "step_id", "compiles")
    OLDEST_STEP_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    COMPILES_FIELD_NUMBER: _ClassVar[int]
    oldest_step_ms: int
    step_id: int
    compiles: bool
    def __init__(self, oldest_step_ms: _Optional[int] = ..., step_id: _Optional[int] = ..., compiles: bool = ...) -> None: ...

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

class ImportReady(_message.Message):
    __slots__ = ("slot", "transfer")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    slot: int
    transfer: int
    def __init__(self, slot: _Optional[int] = ..., transfer: _Optional[int] = ...) -> None: ...

class ImportEnded(_message.Message):
    __slots__ = ("slot", "transfer", "error", "fault", "num_computed_tokens", "num_output_tokens", "sealed_hashes")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEALED_HASHES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    transfer: int
    error: _generation_pb2.Error
    fault: _shared_pb2.ReadFault
    num_computed_tokens: int
    num_output_tokens: int
    sealed_hashes: bytes
    def __init__(self, slot: _Optional[int] = ..., transfer: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., fault: _Optional[_Union[_shared_pb2.ReadFault, str]] = ..., num_computed_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ..., sealed_hashes: _Optional[bytes] = ...) -> None: ...

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
    __slots__ = ("step_id", "error", "fault", "duration_us", "block_ns")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DURATION_US_FIELD_NUMBER: _ClassVar[int]
    BLOCK_NS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    error: _generation_pb2.Error
    fault: _shared_pb2.ReadFault
    duration_us: int
    block_ns: bytes
    def __init__(self, step_id: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., fault: _Optional[_Union[_shared_pb2.ReadFault, str]] = ..., duration_us: _Optional[int] = ..., block_ns: _Optional[bytes] = ...) -> None: ...
