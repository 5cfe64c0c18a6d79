from signalbox.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_FAULT_UNSPECIFIED: _ClassVar[ReadFault]
    READ_FAULT_PAIR: _ClassVar[ReadFault]
    READ_FAULT_REQUEST: _ClassVar[ReadFault]
    READ_FAULT_WITHDRAWN: _ClassVar[ReadFault]

class WorkerRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_ROLE_UNSPECIFIED: _ClassVar[WorkerRole]
    WORKER_ROLE_BOTH: _ClassVar[WorkerRole]
    WORKER_ROLE_PREFILL: _ClassVar[WorkerRole]
    WORKER_ROLE_DECODE: _ClassVar[WorkerRole]

class BlockGroupKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BLOCK_GROUP_KIND_UNSPECIFIED: _ClassVar[BlockGroupKind]
    BLOCK_GROUP_KIND_WINDOW: _ClassVar[BlockGroupKind]
    BLOCK_GROUP_KIND_CHUNK: _ClassVar[BlockGroupKind]

class BudgetKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_KIND_UNSPECIFIED: _ClassVar[BudgetKind]
    BUDGET_KIND_REQUESTS_AT_ONCE: _ClassVar[BudgetKind]
    BUDGET_KIND_REQUESTS_PER_MINUTE: _ClassVar[BudgetKind]
    BUDGET_KIND_TOKENS_PER_MINUTE: _ClassVar[BudgetKind]
READ_FAULT_UNSPECIFIED: ReadFault
READ_FAULT_PAIR: ReadFault
READ_FAULT_REQUEST: ReadFault
READ_FAULT_WITHDRAWN: ReadFault
WORKER_ROLE_UNSPECIFIED: WorkerRole
WORKER_ROLE_BOTH: WorkerRole
WORKER_ROLE_PREFILL: WorkerRole
WORKER_ROLE_DECODE: WorkerRole
BLOCK_GROUP_KIND_UNSPECIFIED: BlockGroupKind
BLOCK_GROUP_KIND_WINDOW: BlockGroupKind
BLOCK_GROUP_KIND_CHUNK: BlockGroupKind
BUDGET_KIND_UNSPECIFIED: BudgetKind
BUDGET_KIND_REQUESTS_AT_ONCE: BudgetKind
BUDGET_KIND_REQUESTS_PER_MINUTE: BudgetKind
BUDGET_KIND_TOKENS_PER_MINUTE: BudgetKind

class RequestRef(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class WorkerRef(_message.Message):
    __slots__ = ("worker_id", "worker_instance")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    worker_instance: str
    def __init__(self, worker_id: _Optional[str] = ..., worker_instance: _Optional[str] = ...) -> None: ...

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

class GroupBlocks(_message.Message):
    __slots__ = ("block_ids", "first")
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    block_ids: bytes
    first: int
    def __init__(self, block_ids: _Optional[bytes] = ..., first: _Optional[int] = ...) -> None: ...
