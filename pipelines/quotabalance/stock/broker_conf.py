"""Pulsar's ``broker.conf``: what its load balancer would read of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from typing import Any, Final, NamedTuple

from quotabalance.stock.shedders import EXTENSIBLE_SHEDDERS, MODULAR_SHEDDERS
from quotabalance.stock.stock_settings import (
    DECLARED,
    REPLACED,
    StockSettings,
    java_type,
    stock_settings,
)
from quotaplane.errors import InputError

_BLANKS: Final = " \t\f"
_ENTRY: Final = re.compile(
    rf"((?:\\.|[^\\=:{_BLANKS}])*)[{_BLANKS}]*[=:]?[{_BLANKS}]*(.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,40}")
_DOUBLE: Final = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)[dDfF]?")
_PRODUCT: Final = re.compile(r"[0-9]{1,18}(?:\s*\*\s*[0-9]{1,18}){1,9}")
_TRIMMED: Final = "".join(map(chr, range(33)))
"""The characters that ``String.trim`` removes."""
_ALIKE: Final = 0.8
"""From this similarity on a name is one of the balancer's with an error. Pulsar 4.0.8 has no other
setting that is more like one of the balancer's than 0.73."""


class BrokerConf(NamedTuple):
    """A file's settings."""

    settings: StockSettings
    given: Mapping[str, Any]
    """The load balancer's settings that the file has, by Pulsar's names."""
    notices: tuple[str, ...]
    """Sentences about entries whose effect is not what one may think, each with its line."""


def parse_broker_conf(data: bytes, source: str) -> BrokerConf:
    r"""Read a file as Pulsar 4.0.8 reads it: ``java.util.Properties``, then ``FieldParser``.

    Of a name that the file has twice, the last value counts. A blank value is the default. A
    boolean is true only if it is "true". Settings that are not the balancer's are passed over.

    Args:
        data: the bytes of the file.
        source: its name in messages.

    Raises:
        InputError: a value that Pulsar can't read either, or a name that is nearly one of the load
            balancer's; where it is.

    >>> read = parse_broker_conf(b"loadBalancerSheddingEnabled = no\nkeepAlive=1", "b.conf")
    >>> read.given
    {'loadBalancerSheddingEnabled': False}
    >>> read.notices
    ("b.conf line 1: loadBalancerSheddingEnabled=no is false: only 'true' is true",)
    """
    entries = {
        name: (f"{source} line {line}: ", text)
        for line, name, text in properties_of(data.decode("latin-1"), source)
    }
    given: dict[str, Any] = {}
    meant: dict[str, Any] = {}
    notices = []
    for name, (where, text) in entries.items():
        setting = name if name in DECLARED else _meant(name, where)
        if not setting:
            continue
        value, notice = _value(setting, text.strip(_TRIMMED), where)
        if setting != name:
            notice = f"Pulsar passes over {name}; here it counts as {setting}, as which it is meant"
        if value is not None:
            (given if setting == name else meant)[setting] = value
        if notice:
            notices.append(where + notice)
    given = {**meant, **given}
    return BrokerConf(replace(StockSettings(), **given), given, tuple(notices))


def without_effect(given: Mapping[str, Any], read: frozenset[str] | None = None) -> list[str]:
    """The settings of a file that change nothing.

    Args:
        given: of ``BrokerConf``.
        read: names that count; None = all but ``REPLACED``.

    >>> without_effect({"loadBalancerSplitIntervalMinutes": 1, "maxUnloadPercentage": 0.2})
    ['loadBalancerSplitIntervalMinutes']
    """
    return [name for name in given if (name in REPLACED if read is None else name not in read)]


def shedder_of(settings: StockSettings) -> tuple[str, str]:
    """The shedder that brokers with these settings run, and a notice if it is not the named one.

    Raises:
        InputError: brokers would not start with it, or the load manager is not modelled.

    >>> shedder_of(StockSettings())
    ('ThresholdShedder', '')
    """
    name = settings.loadBalancerLoadSheddingStrategy.rpartition(".")[2]
    manager = settings.loadManagerClassName.rpartition(".")[2]
    if manager == "ExtensibleLoadManagerImpl":
        if name in EXTENSIBLE_SHEDDERS:
            return name, ""
        used = EXTENSIBLE_SHEDDERS[0]
        return used, f"{manager} has no shedder {name[:200]}, and runs {used}"
    if manager != "ModularLoadManagerImpl":
        raise InputError(f"loadManagerClassName: {manager[:200]!r} is not modelled")
    if name not in MODULAR_SHEDDERS:
        raise InputError(
            f"loadBalancerLoadSheddingStrategy: {manager} has no shedder {name[:200]!r} and does"
            f" not start; expected one of {', '.join(MODULAR_SHEDDERS)}"
        )
    return name, ""


def properties_of(text: str, source: str) -> Iterator[tuple[int, str, str]]:
    r"""Line number, name and value of each entry, as ``java.util.Properties.load`` reads them.

    Raises:
        InputError: an escape that Java can't read.

    >>> list(properties_of("! comment\na = 1\\\n   2\nb\nc:d", "f"))
    [(2, 'a', '12'), (4, 'b', ''), (5, 'c', 'd')]
    """
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), 1))
    for number, line in lines:
        logical = line.lstrip(_BLANKS)
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            logical = logical[:-1] + next(lines, (0, ""))[1].lstrip(_BLANKS)
        entry = _ENTRY.fullmatch(logical)
        assert entry is not None
        name, value = (_unescaped(part, f"{source} line {number}") for part in entry.groups())
        yield number, name, value


def _continues(line: str) -> bool:
    """It ends with a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, where: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise InputError(f"{where}: \\u needs four hexadecimal digits; Pulsar does not start")
        return _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(plain, text)


def _meant(name: str, where: str) -> str:
    """The setting that a name which is none stands for: of a Java getter, its setting; else "".

    Raises:
        InputError: it is nearly the name of a setting.
    """
    setting = name[3:4].lower() + name[4:]
    if name.startswith("get") and setting in DECLARED:
        return setting
    ours = name.startswith(("loadBalanc", "loadManager"))
    near = get_close_matches(name[:200], DECLARED, 1, 0.0 if ours else _ALIKE)
    if near:
        raise InputError(f"{where}Pulsar 4.0.8 has no setting {name[:200]}; do you mean {near[0]}?")
    return ""


def _value(name: str, text: str, where: str) -> tuple[Any, str]:
    """The value, None = the default; and a notice or "".

    Raises:
        InputError: Pulsar does not start with it.
    """
    java = java_type(DECLARED[name])
    value: Any = text
    notice = ""
    if not text:
        return () if java == "List<String>" else None, ""
    if java == "boolean":
        value = text.lower() == "true"
        if text.lower() not in ("true", "false"):
            notice = f"{name}={text[:200]} is false: only 'true' is true"
    elif java == "List<String>":
        value = [part.strip(_TRIMMED) for part in re.sub(",+$", "", text).split(",")]
    elif java in ("int", "long") and _WHOLE.fullmatch(text):
        value = int(text)
    elif java in ("int", "long") and _PRODUCT.fullmatch(text):
        value = prod(map(int, text.split("*")))
        notice = f"{name}={text} is no number for Pulsar, which does not start; {value} counts"
    elif "ouble" in java and (number := _DOUBLE.fullmatch(text)):
        value = float(number[1])
    try:
        return getattr(stock_settings({name: value}), name), notice
    except InputError as error:
        reason = str(error).removeprefix("conf: ")
        raise InputError(f"{where}{reason}; Pulsar does not start with it") from None
