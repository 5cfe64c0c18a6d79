from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    ref: _shared_pb2.RequestRef
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
    def __init__(self, slot: _Optional[int] = ..., ref: _Optional[_Union[_shared_pb2.RequestRef, _Mapping]] = ..., frontend_instance: _Optional[str] = ..., chain_hash: _Optional[bytes] = ..., scheduler_meta: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., max_tokens: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., kind: _Optional[_Union[_generation_pb2.RequestKind, str]] = ..., num_known_tokens: _Optional[int] = ..., import_from: _Optional[_Union[ImportFrom, _Mapping]] = ..., leg: _Optional[int] = ..., account: _Optional[int] = ...) -> None: ...

class ImportFrom(_message.Message):
    __slots__ = ("transfer", "key", "source", "address")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    key: bytes
    source: _shared_pb2.WorkerRef
    address: str
    def __init__(self, transfer: _Optional[int] = ..., key: _Optional[bytes] = ..., source: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., address: _Optional[str] = ...) -> None: ...

class BlockLoan(_message.Message):
    __slots__ = ("block_ids", "groups")
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    block_ids: bytes
    groups: _containers.RepeatedCompositeFieldContainer[_shared_pb2.GroupBlocks]
    def __init__(self, block_ids: _Optional[bytes] = ..., groups: _Optional[_Iterable[_Union[_shared_pb2.GroupBlocks, _Mapping]]] = ...) -> None: ...

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

class Checkpoints(_message.Message):
    __slots__ = ("slots", "checkpoint_ids", "positions")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_IDS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    checkpoint_ids: bytes
    positions: bytes
    def __init__(self, slots: _Optional[bytes] = ..., checkpoint_ids: _Optional[bytes] = ..., positions: _Optional[bytes] = ...) -> None: ...

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
    export_targets: _containers.RepeatedCompositeFieldContainer[_shared_pb2.WorkerRef]
    export_keys: _containers.RepeatedScalarFieldContainer[bytes]
    kept_slots: bytes
    frozen_slots: bytes
    thawed_slots: bytes
    thawed_legs: bytes
    committed_legs: bytes
    def __init__(self, import_starts: _Optional[_Union[ImportStarts, _Mapping]] = ..., committed_slots: _Optional[bytes] = ..., export_slots: _Optional[bytes] = ..., export_transfers: _Optional[bytes] = ..., export_targets: _Optional[_Iterable[_Union[_shared_pb2.WorkerRef, _Mapping]]] = ..., export_keys: _Optional[_Iterable[bytes]] = ..., kept_slots: _Optional[bytes] = ..., frozen_slots: _Optional[bytes] = ..., thawed_slots: _Optional[bytes] = ..., thawed_legs: _Optional[bytes] = ..., committed_legs: _Optional[bytes] = ...) -> None: ...

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
    source: _shared_pb2.WorkerRef
    address: str
    groups: bytes
    block_ids: bytes
    most_us: int
    def __init__(self, number: _Optional[int] = ..., key: _Optional[bytes] = ..., source: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., address: _Optional[str] = ..., groups: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ..., most_us: _Optional[int] = ...) -> None: ...

class BlockExport(_message.Message):
    __slots__ = ("number", "key", "target", "groups", "block_ids")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    key: bytes
    target: _shared_pb2.WorkerRef
    groups: bytes
    block_ids: bytes
    def __init__(self, number: _Optional[int] = ..., key: _Optional[bytes] = ..., target: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., groups: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ...) -> None: ...
