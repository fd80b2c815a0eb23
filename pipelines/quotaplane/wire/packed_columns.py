"""Reads protobuf messages with their packed columns as numpy arrays.

In Python, parsing a report is cheap (protobuf does it in C), but reading its 5,000 values one by
one is not. On the wire a packed list of doubles is a length and the values in memory order, the
same as a ``bytes`` field. So a view of the message type that declares ``bytes`` there gives the
whole column at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quotaplane.model import FloatArray, IntArray

_PACKED_TYPES: Final = {
    FieldDescriptorProto.TYPE_DOUBLE: "<f8",
    FieldDescriptorProto.TYPE_SFIXED64: "<i8",
}

Column: TypeAlias = FloatArray | IntArray | pa.StringArray | pa.BinaryArray


class _Columns(dict[str, FloatArray | IntArray]):
    """Columns by name; a missing column reads as empty."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self._dtypes = dtypes

    def __missing__(self, name: str) -> FloatArray | IntArray:
        return np.empty(0, self._dtypes[name])


class ColumnView:
    """Reads and writes one message type, with its packed columns (double, sfixed64) as arrays.

    It also writes repeated strings from Arrow; it reads them as protobuf does. The view has each
    column as one ``bytes`` field. A message with columns in another encoding is serialized again
    before it is read, so that no message creates more objects than it has strings.
    """

    def __init__(self, message: type[Message]) -> None:
        file, descriptor = FileDescriptorProto(), message.DESCRIPTOR
        descriptor.file.CopyToProto(file)
        self._dtypes: dict[str, str] = {}
        self._tags: dict[str, bytes] = {}
        for field in next(m for m in file.message_type if m.name == descriptor.name).field:
            self._tags[field.name] = _varint(field.number << 3 | 2)
            if field.type in _PACKED_TYPES:
                self._dtypes[field.name] = _PACKED_TYPES[field.type]
                field.type = FieldDescriptorProto.TYPE_BYTES
                field.label = FieldDescriptorProto.LABEL_OPTIONAL
        pool = DescriptorPool()
        pool.Add(file)
        self._whole = message
        self._view = GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))

    def parse(
        self, value: bytes, check: Callable[[Any], None] = lambda _: None
    ) -> tuple[Any, dict[str, FloatArray | IntArray]]:
        """The message, for its other fields, and its columns, also the empty ones.

        ``check`` is called with the message once its strings can be counted, and may raise;
        serializing it again would cost several times as much.

        Raises:
            google.protobuf.message.DecodeError: as protobuf's own parser.
        """
        view: Any = self._view.FromString(value)
        check(view)
        view.DiscardUnknownFields()
        # The view loses columns that are in pieces or not packed (both are valid), unknown fields,
        # and repeated occurrences of a field.
        if view.ByteSize() != len(value):
            whole: Any = self._whole.FromString(value)
            whole.DiscardUnknownFields()
            view = self._view.FromString(whole.SerializeToString())
        columns = _Columns(self._dtypes)
        for field, data in view.ListFields():
            if field.name in self._dtypes:
                if len(data) % 8:
                    self._whole.FromString(value)  # raises the DecodeError
                columns[field.name] = np.frombuffer(data, dtype=self._dtypes[field.name])
        return view, columns

    def encoded(self, name: str, strings: pa.StringArray) -> pa.BinaryArray:
        r"""Each string as an element of a repeated field: behind its tag and its length.

        >>> from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
        >>> ColumnView(LimitsUpdate).encoded("groups", pa.array(["ab", "c"])).to_pylist()
        [b'B\x02ab', b'B\x01c']
        """
        lengths, which = np.unique(pc.binary_length(strings).to_numpy(), return_inverse=True)
        heads = [self._tags[name] + _varint(length) for length in lengths.tolist()]
        heads = pa.array(heads, pa.binary()).take(pa.array(which))
        return pc.binary_join_element_wise(heads, strings.cast(pa.binary()), b"")

    def write(self, message: Message, columns: Mapping[str, Column]) -> bytes:
        """The serialized message followed by these columns.

        In protobuf's wire format, concatenating serialized messages merges them. A column of bytes
        has strings as ``encoded`` made them.
        """
        parts = [message.SerializeToString()]
        for name, column in columns.items():
            if isinstance(column, pa.StringArray):
                parts.append(_joined(self.encoded(name, column)))
            elif isinstance(column, pa.BinaryArray):
                parts.append(_joined(column))
            elif len(column):
                data = np.ascontiguousarray(column, dtype=self._dtypes[name]).tobytes()
                parts += (self._tags[name], _varint(len(data)), data)
        return b"".join(parts)


def _joined(pieces: pa.BinaryArray) -> bytes:
    _, offsets, data = pieces.buffers()
    ends = np.frombuffer(offsets, np.int32)[pieces.offset :]
    return bytes(data[int(ends[0]) : int(ends[len(pieces)])]) if len(pieces) else b""


def _varint(number: int) -> bytes:
    """A length or tag as protobuf writes it: seven bits per byte, the lowest first.

    >>> _varint(300).hex(" ")
    'ac 02'
    """
    low = bytearray()
    while number > 0x7F:
        low.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*low, number])
