from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RankChannel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANK_CHANNEL_UNSPECIFIED: _ClassVar[RankChannel]
    RANK_CHANNEL_TOLD: _ClassVar[RankChannel]
    RANK_CHANNEL_SAYS: _ClassVar[RankChannel]
RANK_CHANNEL_UNSPECIFIED: RankChannel
RANK_CHANNEL_TOLD: RankChannel
RANK_CHANNEL_SAYS: RankChannel

class RankHello(_message.Message):
    __slots__ = ("version", "rank", "num_ranks", "channel")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    version: str
    rank: int
    num_ranks: int
    channel: RankChannel
    def __init__(self, version: _Optional[str] = ..., rank: _Optional[int] = ..., num_ranks: _Optional[int] = ..., channel: _Optional[_Union[RankChannel, str]] = ...) -> None: ...

class RankWelcome(_message.Message):
    __slots__ = ("refusal",)
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    def __init__(self, refusal: _Optional[str] = ...) -> None: ...

class RankMessage(_message.Message):
    __slots__ = ("setup", "call")
    SETUP_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    setup: RankSetup
    call: RankCall
    def __init__(self, setup: _Optional[_Union[RankSetup, _Mapping]] = ..., call: _Optional[_Union[RankCall, _Mapping]] = ...) -> None: ...

class RankSetup(_message.Message):
    __slots__ = ("rank", "num_ranks", "settings", "meeting_place")
    RANK_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MEETING_PLACE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    num_ranks: int
    settings: str
    meeting_place: str
    def __init__(self, rank: _Optional[int] = ..., num_ranks: _Optional[int] = ..., settings: _Optional[str] = ..., meeting_place: _Optional[str] = ...) -> None: ...

class RankCall(_message.Message):
    __slots__ = ("number", "execute", "copy_blocks", "copy_states", "check", "block_sizes", "read_blocks", "write_blocks", "write_state", "record_sizes", "read_records", "write_records", "state_sizes", "read_state")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    COPY_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    COPY_STATES_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZES_FIELD_NUMBER: _ClassVar[int]
    READ_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    WRITE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    WRITE_STATE_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    READ_RECORDS_FIELD_NUMBER: _ClassVar[int]
    WRITE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    STATE_SIZES_FIELD_NUMBER: _ClassVar[int]
    READ_STATE_FIELD_NUMBER: _ClassVar[int]
    number: int
    execute: RankBatch
    copy_blocks: bytes
    copy_states: bytes
    check: bool
    block_sizes: bool
    read_blocks: RankBlocks
    write_blocks: RankBlocks
    write_state: RankState
    record_sizes: bool
    read_records: RankBlocks
    write_records: RankBlocks
    state_sizes: bool
    read_state: RankState
    def __init__(self, number: _Optional[int] = ..., execute: _Optional[_Union[RankBatch, _Mapping]] = ..., copy_blocks: _Optional[bytes] = ..., copy_states: _Optional[bytes] = ..., check: bool = ..., block_sizes: bool = ..., read_blocks: _Optional[_Union[RankBlocks, _Mapping]] = ..., write_blocks: _Optional[_Union[RankBlocks, _Mapping]] = ..., write_state: _Optional[_Union[RankState, _Mapping]] = ..., record_sizes: bool = ..., read_records: _Optional[_Union[RankBlocks, _Mapping]] = ..., write_records: _Optional[_Union[RankBlocks, _Mapping]] = ..., state_sizes: bool = ..., read_state: _Optional[_Union[RankState, _Mapping]] = ...) -> None: ...

class RankBlocks(_message.Message):
    __slots__ = ("group", "blocks", "content")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    group: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    content: bytes
    def __init__(self, group: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ..., content: _Optional[bytes] = ...) -> None: ...

class RankState(_message.Message):
    __slots__ = ("slot", "version", "num_drafts", "content")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    version: int
    num_drafts: int
    content: bytes
    def __init__(self, slot: _Optional[int] = ..., version: _Optional[int] = ..., num_drafts: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class RankBatch(_message.Message):
    __slots__ = ("num_decode_rows", "slots", "query_starts", "token_ids", "positions", "seq_lens", "sample_index", "tables", "state_reads", "state_writes", "state_tails", "state_keeps", "scored", "pooled", "num_prompt_tokens")
    NUM_DECODE_ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    QUERY_STARTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SEQ_LENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    STATE_READS_FIELD_NUMBER: _ClassVar[int]
    STATE_WRITES_FIELD_NUMBER: _ClassVar[int]
    STATE_TAILS_FIELD_NUMBER: _ClassVar[int]
    STATE_KEEPS_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    POOLED_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    num_decode_rows: int
    slots: bytes
    query_starts: bytes
    token_ids: bytes
    positions: bytes
    seq_lens: bytes
    sample_index: bytes
    tables: _containers.RepeatedCompositeFieldContainer[RankTables]
    state_reads: bytes
    state_writes: bytes
    state_tails: bytes
    state_keeps: bytes
    scored: bytes
    pooled: bytes
    num_prompt_tokens: bytes
    def __init__(self, num_decode_rows: _Optional[int] = ..., slots: _Optional[bytes] = ..., query_starts: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., positions: _Optional[bytes] = ..., seq_lens: _Optional[bytes] = ..., sample_index: _Optional[bytes] = ..., tables: _Optional[_Iterable[_Union[RankTables, _Mapping]]] = ..., state_reads: _Optional[bytes] = ..., state_writes: _Optional[bytes] = ..., state_tails: _Optional[bytes] = ..., state_keeps: _Optional[bytes] = ..., scored: _Optional[bytes] = ..., pooled: _Optional[bytes] = ..., num_prompt_tokens: _Optional[bytes] = ...) -> None: ...

class RankTables(_message.Message):
    __slots__ = ("width", "firsts", "counts", "block_ids")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    width: int
    firsts: bytes
    counts: bytes
    block_ids: bytes
    def __init__(self, width: _Optional[int] = ..., firsts: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., block_ids: _Optional[bytes] = ...) -> None: ...

class RankAnswer(_message.Message):
    __slots__ = ("beat", "loaded", "done")
    BEAT_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    beat: bool
    loaded: RankDone
    done: RankDone
    def __init__(self, beat: bool = ..., loaded: _Optional[_Union[RankDone, _Mapping]] = ..., done: _Optional[_Union[RankDone, _Mapping]] = ...) -> None: ...

class RankDone(_message.Message):
    __slots__ = ("number", "digest", "num_collectives", "failure", "took_us", "collectives_us", "content", "likeness")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TOOK_US_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_US_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    LIKENESS_FIELD_NUMBER: _ClassVar[int]
    number: int
    digest: int
    num_collectives: int
    failure: str
    took_us: int
    collectives_us: int
    content: bytes
    likeness: str
    def __init__(self, number: _Optional[int] = ..., digest: _Optional[int] = ..., num_collectives: _Optional[int] = ..., failure: _Optional[str] = ..., took_us: _Optional[int] = ..., collectives_us: _Optional[int] = ..., content: _Optional[bytes] = ..., likeness: _Optional[str] = ...) -> None: ...
