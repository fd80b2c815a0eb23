from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadReport(_message.Message):
    __slots__ = ("magic", "broker", "started_at_ms", "sequence", "measured_at_ms", "draining", "usage", "limit", "bundles", "bytes_in_per_s", "bytes_out_per_s", "messages_in_per_s", "messages_out_per_s", "topics", "sessions")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    magic: int
    broker: str
    started_at_ms: int
    sequence: int
    measured_at_ms: int
    draining: bool
    usage: _containers.RepeatedScalarFieldContainer[float]
    limit: _containers.RepeatedScalarFieldContainer[float]
    bundles: _containers.RepeatedScalarFieldContainer[str]
    bytes_in_per_s: _containers.RepeatedScalarFieldContainer[float]
    bytes_out_per_s: _containers.RepeatedScalarFieldContainer[float]
    messages_in_per_s: _containers.RepeatedScalarFieldContainer[float]
    messages_out_per_s: _containers.RepeatedScalarFieldContainer[float]
    topics: _containers.RepeatedScalarFieldContainer[int]
    sessions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, magic: _Optional[int] = ..., broker: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., sequence: _Optional[int] = ..., measured_at_ms: _Optional[int] = ..., draining: _Optional[bool] = ..., usage: _Optional[_Iterable[float]] = ..., limit: _Optional[_Iterable[float]] = ..., bundles: _Optional[_Iterable[str]] = ..., bytes_in_per_s: _Optional[_Iterable[float]] = ..., bytes_out_per_s: _Optional[_Iterable[float]] = ..., messages_in_per_s: _Optional[_Iterable[float]] = ..., messages_out_per_s: _Optional[_Iterable[float]] = ..., topics: _Optional[_Iterable[int]] = ..., sessions: _Optional[_Iterable[int]] = ...) -> None: ...

class BalancePlan(_message.Message):
    __slots__ = ("magic", "epoch", "seq", "decided_at_ms", "plan_hash", "mode", "bundles", "sources", "targets", "bytes_per_s", "labels", "reasons", "splits", "signature")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    magic: int
    epoch: int
    seq: int
    decided_at_ms: int
    plan_hash: str
    mode: str
    bundles: _containers.RepeatedScalarFieldContainer[str]
    sources: _containers.RepeatedScalarFieldContainer[str]
    targets: _containers.RepeatedScalarFieldContainer[str]
    bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    labels: _containers.RepeatedScalarFieldContainer[str]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    splits: _containers.RepeatedCompositeFieldContainer[BundleSplit]
    signature: bytes
    def __init__(self, magic: _Optional[int] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., decided_at_ms: _Optional[int] = ..., plan_hash: _Optional[str] = ..., mode: _Optional[str] = ..., bundles: _Optional[_Iterable[str]] = ..., sources: _Optional[_Iterable[str]] = ..., targets: _Optional[_Iterable[str]] = ..., bytes_per_s: _Optional[_Iterable[float]] = ..., labels: _Optional[_Iterable[str]] = ..., reasons: _Optional[_Iterable[str]] = ..., splits: _Optional[_Iterable[_Union[BundleSplit, _Mapping]]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class BundleSplit(_message.Message):
    __slots__ = ("bundle", "owner", "boundaries", "label", "reason")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    owner: str
    boundaries: _containers.RepeatedScalarFieldContainer[int]
    label: str
    reason: str
    def __init__(self, bundle: _Optional[str] = ..., owner: _Optional[str] = ..., boundaries: _Optional[_Iterable[int]] = ..., label: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
