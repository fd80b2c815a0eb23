"""Messages with some of their fields left as bytes, to be read with numpy instead of one by one.

In Python, parsing a report costs little (protobuf does it in C) and taking 5,000 values out of it
costs a lot. On the wire a packed list of doubles is its values in memory order behind a length, the
same as a ``bytes`` field; so the same message, declared with ``bytes`` there, hands over the
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

Column: TypeAlias = FloatArray | IntArray | pa.StringArray


class _Columns(dict[str, FloatArray | IntArray]):
    """Columns by name; one that is asked for and not there is empty."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self._dtypes = dtypes

    def __missing__(self, name: str) -> FloatArray | IntArray:
        return np.empty(0, self._dtypes[name])


class ColumnView:
    """Reads and writes one message type whose packed columns (double, sfixed64) are arrays.

    It also writes repeated strings from Arrow; it reads them as protobuf does. A column is a field
    of bytes that is there once: a message in which that is not so is written anew before it is
    read, so that no message makes more objects than it has strings.
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
        """The message (for all that is no column) and its columns; those that are empty, too.

        ``check`` gets the message as soon as its strings can be counted, and may raise: to write it
        anew costs several times as much.

        Raises:
            google.protobuf.message.DecodeError: protobuf would not parse it either.
        """
        view: Any = self._view.FromString(value)
        check(view)
        view.DiscardUnknownFields()
        # Shorter by what the view can't hold: columns in pieces or not packed (which are as valid),
        # unknown fields, and fields that are there twice.
        if view.ByteSize() != len(value):
            whole: Any = self._whole.FromString(value)
            whole.DiscardUnknownFields()
            view = self._view.FromString(whole.SerializeToString())
        columns = _Columns(self._dtypes)
        for field, data in view.ListFields():
            if field.name in self._dtypes:
                if len(data) % 8:
                    self._whole.FromString(value)  # raises what is to be raised
                columns[field.name] = np.frombuffer(data, dtype=self._dtypes[field.name])
        return view, columns

    def write(self, message: Message, columns: Mapping[str, Column]) -> bytes:
        """The serialized message with these columns, which come last.

        Concatenating serialized messages merges them: that is part of protobuf's wire format.
        """
        parts = [message.SerializeToString()]
        for name, column in columns.items():
            if isinstance(column, pa.StringArray):
                parts.append(_strings(self._tags[name], column))
            elif len(column):
                data = np.ascontiguousarray(column, dtype=self._dtypes[name]).tobytes()
                parts += (self._tags[name], _varint(len(data)), data)
        return b"".join(parts)


def _strings(tag: bytes, strings: pa.StringArray) -> bytes:
    r"""A repeated string field: before each string its tag and its length.

    >>> _strings(b"B", pa.array(["ab", "c"]))
    b'B\x02abB\x01c'
    """
    if not len(strings):
        return b""
    lengths, which = np.unique(pc.binary_length(strings).to_numpy(), return_inverse=True)
    heads = pa.array([tag + _varint(length) for length in lengths.tolist()], pa.binary())
    heads = heads.take(pa.array(which))
    joined = pc.binary_join_element_wise(heads, strings.cast(pa.binary()), b"")
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32)[joined.offset :]
    return bytes(data[int(ends[0]) : int(ends[len(joined)])])


def _varint(number: int) -> bytes:
    """A length or tag as protobuf writes it: seven bits a byte, the lowest first.

    >>> _varint(300).hex(" ")
    'ac 02'
    """
    low = bytearray()
    while number > 0x7F:
        low.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*low, number])
