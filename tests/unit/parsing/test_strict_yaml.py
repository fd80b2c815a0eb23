"""YAML that programs read differently is refused with its line, and is not written."""

from __future__ import annotations

import pytest
import yaml

from quotaplane.errors import InputError
from quotaplane.parsing.strict_yaml import read_mappings, read_value, write_yaml

READ_DIFFERENTLY = [
    *("0100", "08", "-010", "+01", "00.5", "0100.5", "01e3"),
    *("0x10", "0X1f", "-0x10", "0o17", "0O7", "0b11", "0x_1"),
    *("1_000", "1__0", "1_000.5", "1_0e3", ".5_0"),
    *("1:30", "2:00", "1:30:15", "-1:30", "0:30", "1:30.5", "12:59:59.25"),
    *("yes", "No", "ON", "off", "y", "N", "="),
    *("2026-03-01", "2026-3-1 12:00:00", "2026-03-01T12:00:00Z", "2026-02-30"),
]


@pytest.mark.parametrize("text", READ_DIFFERENTLY)
@pytest.mark.parametrize("form", ["a: 1\nb: {}", "a: 1\nb: [x, {}]", "a: 1\n{}: b"])
def test_a_plain_text_that_programs_read_differently_is_refused(text: str, form: str) -> None:
    with pytest.raises(InputError, match=r"^f: line 2: ") as raised:
        list(read_mappings(form.replace("{}", text), "f"))
    assert text in str(raised.value)
    assert "quote it" in str(raised.value)


@pytest.mark.parametrize("text", READ_DIFFERENTLY)
def test_it_is_text_in_quotes(text: str) -> None:
    for quoted in (f"'{text}'", f'"{text}"', f"!!str {text}"):
        assert read_value(quoted, "f") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("100", 100), ("-7", -7), ("+5", 5)),
        *(("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1.5E+3", 1500.0)),
        *(("true", True), ("False", False), ("~", None), ("null", None), ("", None)),
        *(("1.2.3.4", "1.2.3.4"), ("b:8080", "b:8080"), ("1:90", "1:90"), ("nope", "nope")),
        *(("2026-03", "2026-03"), ("0x", "0x"), ("1_a", "1_a"), ("yEs", "yEs"), ("-", [None])),
    ],
)
def test_what_all_programs_read_alike(text: str, value: object) -> None:
    read = read_value(text, "f")
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize("text", ["-0", "-0.0", "-.0", "-0e5", "-1e-999"])
def test_a_zero_has_no_sign(text: str) -> None:
    with pytest.raises(InputError, match=f"^f: line 2: {text}: would be read as zero: write 0$"):
        list(read_mappings(f"a: 1\nb: {text}", "f"))


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("!!binary aGk=", "!!binary"),
        ("!!set {a, b}", "!!set"),
        ("!!omap [a: 1]", "!!omap"),
        ("!!timestamp 2026-03-01", "!!timestamp"),
        ("!!python/name:os.system ''", "!!python/name:os.system"),
        ("!!int 0x10", "!!int"),
        ("!!int ''", "!!int"),
        ("!!bool x", "!!bool"),
        ("!mine [1]", "!mine"),
        ("!mine 1", "!mine"),
    ],
)
def test_a_tag_is_refused_with_its_line(text: str, tag: str) -> None:
    with pytest.raises(InputError, match=f"^f: line 2: the tag {tag} can't be used here"):
        list(read_mappings(f"a: 1\nb: {text}", "f"))


@pytest.mark.parametrize("text", [*READ_DIFFERENTLY, "1e3", "true", "~", "null", "<<", "-0", "x"])
def test_what_is_written_is_read_alike_here_and_elsewhere(text: str) -> None:
    written = write_yaml({"group": text, "list": [text], "weight": 1e18})
    expected = {"group": text, "list": [text], "weight": 1e18}
    assert yaml.safe_load(written) == read_value(written, "f") == expected
    if text != "x":
        assert f"'{text}'" in written
