"""Names: which are UTF-8, and which have which id."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.groups.ids import NO_ID, NOT_READ, GroupIds, NewNames, ids_of, ids_of_column
from quotaplane.model import MAX_GROUP_CHARS, group_id
from quotaplane.wire.raw import as_strings

PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from("aé€😀\ud7ff\ue000\U0010ffff").map(lambda text: text.encode()),
    st.sampled_from([b"\xc2", b"\xe0\x9f", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90", b"\x80"]),
)


def is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.lists(PIECES, max_size=4).map(b"".join), max_size=6), st.integers(0, 2))
def test_names_are_utf8_when_python_says_so(names: list[bytes], first: int) -> None:
    found, flawed = as_strings(pa.array(names, pa.binary()).slice(first))
    expected = [not is_utf8(name) for name in names[first:]]
    assert (flawed.tolist() if flawed is not None else [False] * len(expected)) == expected
    texts = [b"" if bad else name for bad, name in zip(expected, names[first:], strict=True)]
    assert [text.encode() for text in found.to_pylist()] == texts


GROUPS = st.one_of(
    st.text(max_size=6),
    st.text("aü€😀\u200b\ue000", max_size=4),
    st.lists(st.text("ab:\n", max_size=3), max_size=4).map("::".join),
    st.sampled_from(["x" * MAX_GROUP_CHARS, "x" * (MAX_GROUP_CHARS + 1), "ü" * MAX_GROUP_CHARS]),
)


@given(st.lists(GROUPS, max_size=8))
def test_ids_of_many_names_are_those_of_each(names: list[str]) -> None:
    expected = [
        group_id(name) if 0 < len(name) <= MAX_GROUP_CHARS and name.isprintable() else NO_ID
        for name in names
    ]
    assert ids_of(names).tolist() == expected
    assert ids_of_column(pa.array(names, pa.string())).tolist() == expected
    in_parts = GroupIds(most_encoded=3)
    assert in_parts.of_column(pa.array(names, pa.string()), NewNames(9)).tolist() == expected


@pytest.mark.parametrize("character", ["a", "ü", "€", "😀"])
def test_names_that_are_remembered_take_a_bounded_memory(character: str) -> None:
    remembered = GroupIds(most_bytes=1_000_000)
    for round_ in range(20):
        names = [f"{round_}/{n}/{character * 1000}" for n in range(50)]
        column = pa.array(names, pa.string())
        assert remembered.of_column(column, NewNames(50)).tolist() == list(map(group_id, names))
        assert 0 < sum(map(sys.getsizeof, remembered.cached)) <= 1_000_000


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=12),
    st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True),
    st.integers(0, 9),
    st.sampled_from([1, 2, 100]),
)
def test_of_new_names_as_many_are_read_as_allowed(
    names: list[str], known: list[str], most: int, at_once: int
) -> None:
    new = [name for name in dict.fromkeys(names) if name not in known]
    expected = [NOT_READ if name in new[most:] else group_id(name) for name in names]
    room = NewNames(most)
    ids = GroupIds(most_strings=at_once, most_encoded=2 * at_once, sample=1)
    ids.of(known, NewNames(len(known)))
    assert ids.of_column(pa.array(names, pa.string()), room).tolist() == expected
    assert room.left == max(most - len(new), 0)
