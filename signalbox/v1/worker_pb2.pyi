from signalbox.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttemptAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_ACTION_UNSPECIFIED: _ClassVar[AttemptAction]
    ATTEMPT_ACTION_CANCEL: _ClassVar[AttemptAction]
    ATTEMPT_ACTION_FINISH: _ClassVar[AttemptAction]
    ATTEMPT_ACTION_PAUSE: _ClassVar[AttemptAction]
    ATTEMPT_ACTION_UNPAUSE: _ClassVar[AttemptAction]
ATTEMPT_ACTION_UNSPECIFIED: AttemptAction
ATTEMPT_ACTION_CANCEL: AttemptAction
ATTEMPT_ACTION_FINISH: AttemptAction
ATTEMPT_ACTION_PAUSE: AttemptAction
ATTEMPT_ACTION_UNPAUSE: AttemptAction

class StreamOutputsRequest(_message.Message):
    __slots__ = ("frontend_instance", "acknowledged", "worker_instance", "log_number", "operations", "protocol")
    FRONTEND_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LOG_NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    frontend_instance: str
    acknowledged: int
    worker_instance: str
    log_number: int
    operations: _containers.RepeatedCompositeFieldContainer[AttemptOperation]
    protocol: _generation_pb2.ProtocolVersions
    def __init__(self, frontend_instance: _Optional[str] = ..., acknowledged: _Optional[int] = ..., worker_instance: _Optional[str] = ..., log_number: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[AttemptOperation, _Mapping]]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ...) -> None: ...

class AttemptOperation(_message.Message):
    __slots__ = ("attempt", "action")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    action: AttemptAction
    def __init__(self, attempt: _Optional[int] = ..., action: _Optional[_Union[AttemptAction, str]] = ...) -> None: ...

class StreamOutputsResponse(_message.Message):
    __slots__ = ("worker_instance", "log_number", "batches", "protocol", "scheduler_epoch", "scheduler_instance")
    WORKER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LOG_NUMBER_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker_instance: str
    log_number: int
    batches: _containers.RepeatedCompositeFieldContainer[OutputBatch]
    protocol: _generation_pb2.ProtocolVersions
    scheduler_epoch: int
    scheduler_instance: str
    def __init__(self, worker_instance: _Optional[str] = ..., log_number: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[OutputBatch, _Mapping]]] = ..., protocol: _Optional[_Union[_generation_pb2.ProtocolVersions, _Mapping]] = ..., scheduler_epoch: _Optional[int] = ..., scheduler_instance: _Optional[str] = ...) -> None: ...

class OutputBatch(_message.Message):
    __slots__ = ("sequence", "attempts", "starts", "counts", "token_ids", "finished", "logprobs", "prompt_logprobs", "vectors", "legs", "found")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    attempts: bytes
    starts: bytes
    counts: bytes
    token_ids: bytes
    finished: _containers.RepeatedCompositeFieldContainer[OutputFinished]
    logprobs: _containers.RepeatedCompositeFieldContainer[OutputLogprobs]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[OutputPromptLogprobs]
    vectors: _containers.RepeatedCompositeFieldContainer[OutputVector]
    legs: bytes
    found: _containers.RepeatedCompositeFieldContainer[OutputFound]
    def __init__(self, sequence: _Optional[int] = ..., attempts: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., finished: _Optional[_Iterable[_Union[OutputFinished, _Mapping]]] = ..., logprobs: _Optional[_Iterable[_Union[OutputLogprobs, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[OutputPromptLogprobs, _Mapping]]] = ..., vectors: _Optional[_Iterable[_Union[OutputVector, _Mapping]]] = ..., legs: _Optional[bytes] = ..., found: _Optional[_Iterable[_Union[OutputFound, _Mapping]]] = ...) -> None: ...

class OutputFound(_message.Message):
    __slots__ = ("attempt", "num_cached_tokens")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    num_cached_tokens: int
    def __init__(self, attempt: _Optional[int] = ..., num_cached_tokens: _Optional[int] = ...) -> None: ...

class OutputFinished(_message.Message):
    __slots__ = ("attempt", "reason", "num_output_tokens", "error", "leg")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    reason: _generation_pb2.FinishReason
    num_output_tokens: int
    error: _generation_pb2.Error
    leg: int
    def __init__(self, attempt: _Optional[int] = ..., reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., num_output_tokens: _Optional[int] = ..., error: _Optional[_Union[_generation_pb2.Error, _Mapping]] = ..., leg: _Optional[int] = ...) -> None: ...

class OutputPromptLogprobs(_message.Message):
    __slots__ = ("attempt", "start", "tokens", "leg")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    start: int
    tokens: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    leg: int
    def __init__(self, attempt: _Optional[int] = ..., start: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ..., leg: _Optional[int] = ...) -> None: ...

class OutputVector(_message.Message):
    __slots__ = ("attempt", "values")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    values: bytes
    def __init__(self, attempt: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...

class OutputLogprobs(_message.Message):
    __slots__ = ("attempt", "tokens")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    tokens: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenLogprobs]
    def __init__(self, attempt: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_generation_pb2.TokenLogprobs, _Mapping]]] = ...) -> None: ...
