"""Makes hostile inputs from valid ones: protobuf by fields, JSON by values, text by tokens.

Everything follows from the ``Random`` that is passed in, so a seed repeats an input.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1),
)
DOUBLES = tuple(
    struct.pack("<d", value)
    for value in (
        *(0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, -5e-324, 1e15, 1e18, 1e300, 1.7e308),
        *(float("inf"), float("-inf"), float("nan")),
    )
)
TEXTS = (
    *("", " ", "a", "b1", "NaN", "Infinity", "-1", "null", "true", "0", "1e999", "9" * 400),
    *("\0", "\n", "a\tb", "\x7f", "\ud800", "\udfff\ud800", "\u202e", "\ufeff", "é", "😀"),
    *("ß" * 50, "..", "a/../b", "a/b", "acme/orders", "a::b", "::", "a::", "user=a"),
    *("user=<default>", "a/b/0x00000000_0xffffffff", "a/b/0xffffffff_0x00000000", "0x0_0x1"),
    *("0x00000000_0x80000000", "persistent://a/b/c", "persistent://a/b/c-partition-0"),
    *("http://[", "http://b1:8080", "://", "*", "a*", "[a", "(", "(a+)+$", "\\", '"', "'"),
    *("%00", "%zz", "{}", "${HOME}", "x" * 1025),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400),
    *(-(10**30), 0.0, -0.0, 0.5, -1.5, 1e15, 1e18, 1e300),
    *(float("nan"), float("inf"), float("-inf")),
    *([], {}, [[]], [None], {"": None}, [0] * 50, {"a": {"a": {"a": 1}}}, ["a", 1], [{}]),
)
_FIXED = {1: 8, 5: 4}
"""Bytes of a value by its kind on the wire."""
_BYTES = bytes((0, 1, 8, 10, 16, 18, 26, 34, 127, 128, 255))


def damaged(random: Random, value: bytes, samples: Sequence[bytes]) -> bytes:
    """The bytes with one to four places damaged; a place may come from another sample."""
    data = bytearray(value)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        until = at + random.choice((1, 1, 2, 4, 8, 50))
        kind = random.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = random.choice(_BYTES)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:until]
        elif kind == 4:
            data[at:at] = data[at:until] * random.choice((1, 2, 30))
        elif kind == 5:
            data[at:at] = random.randbytes(random.randint(1, 12))
        elif kind == 6:
            other = random.choice(samples)
            begin = random.randrange(len(other) + 1)
            data[at:until] = other[begin : begin + random.randint(1, 60)]
        else:
            data[at:until] = varint(random.choice(NUMBERS))
    return bytes(data)


class Field(NamedTuple):
    """A field of a protobuf message as it is on the wire."""

    number: int
    wire: int
    """0: varint, 1: 8 bytes, 2: bytes, 5: 4 bytes."""
    value: int | bytes


def varint(number: int, extra: int = 0) -> bytes:
    """A number as protobuf writes it, ``extra`` bytes longer than necessary."""
    out = bytearray()
    while number > 0x7F or extra:
        out.append(number & 0x7F | 0x80)
        extra -= number <= 0x7F
        number >>= 7
    return bytes([*out, number])


def fields_of(message: bytes) -> list[Field] | None:
    """The fields of a message; None if it is none, or one with groups."""
    try:
        parsed = [*UnknownFieldSet(Empty.FromString(message))]
    except DecodeError:
        return None
    if not {each.wire_type for each in parsed} <= {0, 1, 2, 5}:
        return None
    fields = []
    for each in parsed:
        value = each.data
        if each.wire_type in _FIXED:
            value = value.to_bytes(_FIXED[each.wire_type], "little")
        fields.append(Field(each.field_number, each.wire_type, value))
    return fields


def written(random: Random, fields: Sequence[Field]) -> bytes:
    """The fields as a message; now and then a length or a tag is wrong, or too long."""
    parts: list[bytes] = []
    odd = random.random() < 0.1
    for number, wire, value in fields:
        extra = random.randrange(3) if odd and random.random() < 0.2 else 0
        parts.append(varint(number << 3 | wire, extra))
        if isinstance(value, int):
            parts.append(varint(value, extra))
            continue
        if wire == 2:
            wrong = random.choice((-1, 1, 7, 2**31, 2**62)) if extra == 2 else 0
            parts.append(varint(max(len(value) + wrong, 0), extra))
        parts.append(value)
    return b"".join(parts)


def protobuf(random: Random, samples: Sequence[bytes]) -> bytes:
    """A message of which some fields are missing, repeated, in another order or of another kind."""
    value = random.choice(samples)
    if random.random() < 0.15:
        return damaged(random, value, samples)
    fields = fields_of(value) or []
    for _ in range(random.randint(1, 4)):
        _change_field(random, fields, samples)
    return written(random, fields)


def _change_field(random: Random, fields: list[Field], samples: Sequence[bytes]) -> None:
    if not fields:
        fields.append(Field(random.randint(1, 30), 0, random.choice(NUMBERS)))
    at = random.randrange(len(fields))
    number, wire, value = fields[at]
    kind = random.randrange(9)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields[at:at] = [fields[at]] * random.choice((1, 1, 2, 40))
    elif kind == 2:
        fields.append(fields.pop(at))
    elif kind == 3:
        fields[at] = Field(random.randint(1, 40), wire, value)
    elif kind == 4:
        others = fields_of(random.choice(samples)) or fields
        fields.insert(at, random.choice(others))
    elif kind == 5:
        wires: tuple[Field, ...] = (
            Field(number, 0, random.choice(NUMBERS)),
            Field(number, 1, random.choice(DOUBLES)),
            Field(number, 5, random.randbytes(4)),
            Field(number, 2, random.randbytes(random.choice((0, 1, 7, 8, 16, 40)))),
        )
        fields[at] = random.choice(wires)
    elif isinstance(value, int):
        fields[at] = Field(number, wire, random.choice(NUMBERS))
    else:
        fields[at] = Field(number, wire, _changed_payload(random, wire, value, samples))


def _changed_payload(random: Random, wire: int, value: bytes, samples: Sequence[bytes]) -> bytes:
    if wire != 2:
        return random.choice(DOUBLES)[: len(value)]
    kind = random.randrange(5)
    if kind == 0:
        return random.choice(TEXTS).encode("utf-8", "surrogatepass")
    if kind == 1 and value:
        return damaged(random, value, samples)
    if kind == 2 and len(value) >= 8:
        at = random.randrange(len(value) // 8) * 8
        return value[:at] + random.choice(DOUBLES) + value[at + 8 :]
    if kind == 3:
        return value + random.choice(DOUBLES) * random.choice((1, 2, 20))
    inner = fields_of(value)
    if not inner:
        return value * 2
    _change_field(random, inner, samples)
    return written(random, inner)


def odd_value(random: Random) -> Any:
    """A JSON value that a program may not expect."""
    kind = random.random()
    if kind < 0.45:
        return random.choice(VALUES)
    if kind < 0.9:
        return random.choice(TEXTS)
    value: Any = random.choice(VALUES)
    for _ in range(random.choice((1, 3, 30, 40, 300))):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def changed_value(random: Random, value: Any) -> Any:
    """The JSON value with one place changed; the rest is shared with the original."""
    if not value or not isinstance(value, (dict, list)) or random.random() < 0.08:
        return odd_value(random)
    if isinstance(value, list):
        at = random.randrange(len(value))
        kind = random.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value[:at] + [value[at]] * random.choice((2, 3, 40)) + value[at:]
        if kind == 2:
            return dict.fromkeys(map(str, range(len(value))), value[at])
        return [*value[:at], changed_value(random, value[at]), *value[at + 1 :]]
    key = random.choice(list(value))
    kind = random.randrange(9)
    if kind == 0:
        return {name: each for name, each in value.items() if name != key}
    if kind == 1:
        return {**value, random.choice(TEXTS): random.choice(list(value.values()))}
    if kind == 2:
        return {(random.choice(TEXTS) if name == key else name): e for name, e in value.items()}
    if kind == 3:
        return list(value.values())
    return {**value, key: changed_value(random, value[key])}


def changed_json(random: Random, samples: Sequence[Any]) -> bytes:
    """A JSON document with some places changed; sometimes a key twice, or damaged bytes."""
    value = random.choice(samples)
    for _ in range(random.randint(1, 3)):
        value = changed_value(random, value)
    text = json.dumps(value, ensure_ascii=random.random() < 0.7)
    data = text.encode("utf-8", "surrogatepass")
    kind = random.random()
    if kind < 0.05:
        key = b'"' + random.choice((b"a", b"cpu", b"usage", b"group", b"keys")) + b'": 1, '
        return data.replace(b"{", b"{" + key + key, 1)
    if kind < 0.15:
        return damaged(random, data, [data])
    return data


def texts(samples: Sequence[str], tokens: Sequence[str]) -> Callable[[Random], bytes]:
    """Makes texts by ``changed_text``, as bytes."""
    return lambda random: changed_text(random, samples, tokens).encode("utf-8", "surrogatepass")


def changed_text(random: Random, samples: Sequence[str], tokens: Sequence[str]) -> str:
    """A text with tokens inserted, removed, repeated or replaced; a token may be any character."""
    text = random.choice(samples)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(text) + 1)
        until = at + random.choice((0, 1, 1, 2, 5, 20))
        kind = random.randrange(5)
        if kind == 0:
            text = text[:at] + text[until:]
        elif kind == 1:
            text = text[:at] + text[at:until] * random.choice((2, 3, 40)) + text[until:]
        elif kind == 2:
            other = random.choice(samples)
            begin = random.randrange(len(other) + 1)
            text = text[:at] + other[begin : begin + random.randint(1, 30)] + text[until:]
        else:
            text = text[:at] + random.choice(tokens) + text[until:]
    return text


def several(random: Random, make: Callable[[Random], bytes], most: int) -> bytes:
    """One to ``most`` messages as one input."""
    return joined(make(random) for _ in range(random.randint(1, most)))


def joined(messages: Iterable[bytes]) -> bytes:
    """Messages as one input, each behind its length."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def parts_of(value: bytes) -> list[bytes]:
    """The messages of ``joined``."""
    parts, at = [], 0
    while at < len(value):
        begin = at + 4
        at = begin + int.from_bytes(value[at:begin], "big")
        parts.append(value[begin:at])
    return parts
