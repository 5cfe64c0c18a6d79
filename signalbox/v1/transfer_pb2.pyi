from signalbox.v1 import generation_pb2 as _generation_pb2
from signalbox.v1 import shared_pb2 as _shared_pb2
from signalbox.v1 import transfer_offer_pb2 as _transfer_offer_pb2
from signalbox.v1 import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlocksBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOCKS_BY_UNSPECIFIED: _ClassVar[BlocksBy]
    BLOCKS_BY_CONTENT: _ClassVar[BlocksBy]
    BLOCKS_BY_CHANNEL: _ClassVar[BlocksBy]
BLOCKS_BY_UNSPECIFIED: BlocksBy
BLOCKS_BY_CONTENT: BlocksBy
BLOCKS_BY_CHANNEL: BlocksBy

class PullRequest(_message.Message):
    __slots__ = ("hello", "num_read", "blocks_by")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    NUM_READ_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_BY_FIELD_NUMBER: _ClassVar[int]
    hello: PullHello
    num_read: int
    blocks_by: BlocksBy
    def __init__(self, hello: _Optional[_Union[PullHello, _Mapping]] = ..., num_read: _Optional[int] = ..., blocks_by: _Optional[_Union[BlocksBy, str]] = ...) -> None: ...

class PullHello(_message.Message):
    __slots__ = ("transfer", "key", "target", "protocol", "num_found", "is_export", "beats")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NUM_FOUND_FIELD_NUMBER: _ClassVar[int]
    IS_EXPORT_FIELD_NUMBER: _ClassVar[int]
    BEATS_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    key: bytes
    target: _shared_pb2.WorkerRef
    protocol: _generation_pb2.ProtocolVersions
    num_found: int
    is_export: bool
    beats: bool
    def __init__(self, transfer: _Optional[int] = ..., key: _Optional[bytes] = ..., target: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., num_found: _Optional[int] = ..., is_export: bool = ..., beats: bool = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("head", "blocks", "tail", "error", "state", "fault")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    head: PullHead
    blocks: BlocksReady
    tail: PullTail
    error: _generation_pb2.Error
    state: StatePart
    fault: _shared_pb2.ReadFault
    def __init__(self, head: _Optional[_Union[PullHead, _Mapping]] = ..., blocks: _Optional[_Union[BlocksReady, _Mapping]] = ..., tail: _Optional[_Union[PullTail, _Mapping]] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., state: _Optional[_Union[StatePart, _Mapping]] = ..., fault: _Optional[_Union[_shared_pb2.ReadFault, str]] = ...) -> None: ...

class PullHead(_message.Message):
    __slots__ = ("source", "payload", "token_ids", "num_prompt_tokens", "offer")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    source: _shared_pb2.WorkerRef
    payload: bytes
    token_ids: bytes
    num_prompt_tokens: int
    offer: _transfer_offer_pb2.TransferOffer
    def __init__(self, source: _Optional[_Union[_shared_pb2.WorkerRef, _Mapping]] = ..., payload: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., num_prompt_tokens: _Optional[int] = ..., offer: _Optional[_Union[_transfer_offer_pb2.TransferOffer, _Mapping]] = ...) -> None: ...

class BlocksReady(_message.Message):
    __slots__ = ("number", "group", "first", "block_ids", "content", "num_left")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NUM_LEFT_FIELD_NUMBER: _ClassVar[int]
    number: int
    group: int
    first: int
    block_ids: bytes
    content: bytes
    num_left: int
    def __init__(self, number: _Optional[int] = ..., group: _Optional[int] = ..., first: _Optional[int] = ..., block_ids: _Optional[bytes] = ..., content: _Optional[bytes] = ..., num_left: _Optional[int] = ...) -> None: ...

class StatePart(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class PullTail(_message.Message):
    __slots__ = ("token_ids", "num_computed_tokens", "num_read_positions", "sealed_hashes", "chain_hash", "unread", "num_state_bytes", "num_state_drafts")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_READ_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SEALED_HASHES_FIELD_NUMBER: _ClassVar[int]
    CHAIN_HASH_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    NUM_STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_STATE_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    num_computed_tokens: int
    num_read_positions: int
    sealed_hashes: bytes
    chain_hash: bytes
    unread: _containers.RepeatedCompositeFieldContainer[_worker_pb2.OutputBatch]
    num_state_bytes: int
    num_state_drafts: int
    def __init__(self, token_ids: _Optional[bytes] = ..., num_computed_tokens: _Optional[int] = ..., num_read_positions: _Optional[int] = ..., sealed_hashes: _Optional[bytes] = ..., chain_hash: _Optional[bytes] = ..., unread: _Optional[_Iterable[_Union[_worker_pb2.OutputBatch, _Mapping]]] = ..., num_state_bytes: _Optional[int] = ..., num_state_drafts: _Optional[int] = ...) -> None: ...
