from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class UsageReport(_message.Message):
    __slots__ = ("magic", "broker", "started_at_ms", "sequence", "window_ms", "applied_epoch", "applied_seq", "groups", "group_ids", "publish_messages_per_s", "publish_bytes_per_s", "dispatch_messages_per_s", "dispatch_bytes_per_s", "throttled_publish_messages_per_s", "throttled_publish_bytes_per_s", "throttled_dispatch_messages_per_s", "throttled_dispatch_bytes_per_s", "applied_seqs", "limit_publish_messages_per_s", "limit_publish_bytes_per_s", "limit_dispatch_messages_per_s", "limit_dispatch_bytes_per_s")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQ_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_PUBLISH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_PUBLISH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_DISPATCH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_DISPATCH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_PUBLISH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_PUBLISH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_DISPATCH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_DISPATCH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    magic: int
    broker: str
    started_at_ms: int
    sequence: int
    window_ms: int
    applied_epoch: int
    applied_seq: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    publish_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    publish_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    dispatch_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    dispatch_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    throttled_publish_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    throttled_publish_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    throttled_dispatch_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    throttled_dispatch_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    applied_seqs: _containers.RepeatedScalarFieldContainer[int]
    limit_publish_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    limit_publish_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    limit_dispatch_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    limit_dispatch_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, magic: _Optional[int] = ..., broker: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., sequence: _Optional[int] = ..., window_ms: _Optional[int] = ..., applied_epoch: _Optional[int] = ..., applied_seq: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., group_ids: _Optional[_Iterable[int]] = ..., publish_messages_per_s: _Optional[_Iterable[float]] = ..., publish_bytes_per_s: _Optional[_Iterable[float]] = ..., dispatch_messages_per_s: _Optional[_Iterable[float]] = ..., dispatch_bytes_per_s: _Optional[_Iterable[float]] = ..., throttled_publish_messages_per_s: _Optional[_Iterable[float]] = ..., throttled_publish_bytes_per_s: _Optional[_Iterable[float]] = ..., throttled_dispatch_messages_per_s: _Optional[_Iterable[float]] = ..., throttled_dispatch_bytes_per_s: _Optional[_Iterable[float]] = ..., applied_seqs: _Optional[_Iterable[int]] = ..., limit_publish_messages_per_s: _Optional[_Iterable[float]] = ..., limit_publish_bytes_per_s: _Optional[_Iterable[float]] = ..., limit_dispatch_messages_per_s: _Optional[_Iterable[float]] = ..., limit_dispatch_bytes_per_s: _Optional[_Iterable[float]] = ...) -> None: ...

class LimitsUpdate(_message.Message):
    __slots__ = ("magic", "broker", "shard", "epoch", "seq", "issued_at_ms", "lease_ms", "groups", "group_ids", "publish_messages_per_s", "publish_bytes_per_s", "dispatch_messages_per_s", "dispatch_bytes_per_s", "removed_groups", "removed_group_ids", "broker_started_at_ms", "safe_publish_messages_per_s", "safe_publish_bytes_per_s", "safe_dispatch_messages_per_s", "safe_dispatch_bytes_per_s")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    REMOVED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    BROKER_STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SAFE_PUBLISH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SAFE_PUBLISH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SAFE_DISPATCH_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SAFE_DISPATCH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    magic: int
    broker: str
    shard: int
    epoch: int
    seq: int
    issued_at_ms: int
    lease_ms: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    publish_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    publish_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    dispatch_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    dispatch_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    removed_groups: _containers.RepeatedScalarFieldContainer[str]
    removed_group_ids: _containers.RepeatedScalarFieldContainer[int]
    broker_started_at_ms: int
    safe_publish_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    safe_publish_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    safe_dispatch_messages_per_s: _containers.RepeatedScalarFieldContainer[float]
    safe_dispatch_bytes_per_s: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, magic: _Optional[int] = ..., broker: _Optional[str] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., issued_at_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., group_ids: _Optional[_Iterable[int]] = ..., publish_messages_per_s: _Optional[_Iterable[float]] = ..., publish_bytes_per_s: _Optional[_Iterable[float]] = ..., dispatch_messages_per_s: _Optional[_Iterable[float]] = ..., dispatch_bytes_per_s: _Optional[_Iterable[float]] = ..., removed_groups: _Optional[_Iterable[str]] = ..., removed_group_ids: _Optional[_Iterable[int]] = ..., broker_started_at_ms: _Optional[int] = ..., safe_publish_messages_per_s: _Optional[_Iterable[float]] = ..., safe_publish_bytes_per_s: _Optional[_Iterable[float]] = ..., safe_dispatch_messages_per_s: _Optional[_Iterable[float]] = ..., safe_dispatch_bytes_per_s: _Optional[_Iterable[float]] = ...) -> None: ...
