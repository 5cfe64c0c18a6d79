from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransferOffer(_message.Message):
    __slots__ = ("token", "layout_digest", "host_id", "socket_path", "tcp_address", "is_tls")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    SOCKET_PATH_FIELD_NUMBER: _ClassVar[int]
    TCP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_TLS_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    layout_digest: str
    host_id: str
    socket_path: str
    tcp_address: str
    is_tls: bool
    def __init__(self, token: _Optional[bytes] = ..., layout_digest: _Optional[str] = ..., host_id: _Optional[str] = ..., socket_path: _Optional[str] = ..., tcp_address: _Optional[str] = ..., is_tls: bool = ...) -> None: ...

class ChannelHello(_message.Message):
    __slots__ = ("token", "layout_digest", "wants_checksums")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WANTS_CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    layout_digest: str
    wants_checksums: bool
    def __init__(self, token: _Optional[bytes] = ..., layout_digest: _Optional[str] = ..., wants_checksums: bool = ...) -> None: ...

class ChannelWelcome(_message.Message):
    __slots__ = ("strips",)
    STRIPS_FIELD_NUMBER: _ClassVar[int]
    strips: _containers.RepeatedCompositeFieldContainer[Strip]
    def __init__(self, strips: _Optional[_Iterable[_Union[Strip, _Mapping]]] = ...) -> None: ...

class Strip(_message.Message):
    __slots__ = ("offset", "num_blocks", "bytes_per_block")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    offset: int
    num_blocks: int
    bytes_per_block: int
    def __init__(self, offset: _Optional[int] = ..., num_blocks: _Optional[int] = ..., bytes_per_block: _Optional[int] = ...) -> None: ...

class ReadBlocks(_message.Message):
    __slots__ = ("group", "blocks")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    group: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class BlocksRead(_message.Message):
    __slots__ = ("num_bytes", "refusal")
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    num_bytes: int
    refusal: str
    def __init__(self, num_bytes: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...
