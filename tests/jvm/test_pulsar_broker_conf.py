"""``broker.conf`` as Pulsar's own classes read it, and as we do: the same settings, or neither."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from quotabalance.stock.broker_conf import parse_broker_conf
from quotabalance.stock.stock_settings import DECLARED, java_type
from quotaplane.errors import InputError
from tests.jvm.pulsar_classes import ask_pulsar
from tests.servers.pulsar_roles import pulsar_home

pytestmark = pytest.mark.nightly

_WRITTEN: Final = (
    "true|TRUE|yes|| |false|1|0|-5|+7|0017|1e3|2.50|.5|3.|1_000|2147483647|2147483648"
    r"|9223372036854775808|1d|2.5F|NaN|Infinity|1,000|a,b , c,,|,|x y|\u0031\u0032|\\ 5"
    "|5 # not a comment|0x10|é|1 2|--1|1.5e-3|1e400|ten"
)
_VALUES: Final = _WRITTEN.split("|")
_NAMES = [name for name, setting in DECLARED.items() if not java_type(setting).endswith("Type")]
"""All but one, whose values are an enumeration, and which has no effect here."""


def random_file(chance: random.Random) -> str:
    lines = []
    for _ in range(chance.randint(0, 6)):
        name, value = chance.choice(_NAMES), chance.choice(_VALUES)
        sign = chance.choice(["=", " = ", ":", " ", "\t:\f", "= \\\n   "])
        lines.append(f"{chance.choice(['', '  '])}{name}{sign}{value}")
        if chance.random() < 0.2:
            lines.append(
                chance.choice(["# minUnloadMessage=1", " ! no", "", "webServicePort=8080"])
            )
    return chance.choice(["\n", "\r\n", "\r"]).join(lines)


def ours(file: str) -> dict[str, Any]:
    try:
        return asdict(parse_broker_conf(file.encode("latin-1"), "f").settings)
    except InputError as error:
        return {"error": str(error)}


def test_every_file_is_read_as_pulsar_reads_it() -> None:
    chance = random.Random(43)
    files = [random_file(chance) for _ in range(3000)]
    stock = Path(pulsar_home(), "conf", "broker.conf").read_text("latin-1")
    files += [stock, f"{stock}\nloadBalancerSheddingEnabled=false\n"]
    asked = [{"kind": "broker.conf", "file": file, "names": _NAMES} for file in files]
    refused = 0
    for file, theirs in zip(files, ask_pulsar("PulsarPlacement", asked), strict=True):
        found = ours(file)
        if "error" in theirs or "error" in found:
            # Numbers that no balancer can use we refuse, too.
            strange = any(word in file for word in ("NaN", "Infinity", "1e400"))
            assert "error" in found, (file, theirs)
            assert "error" in theirs or strange, (file, found)
            refused += 1
            continue
        theirs = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in theirs.items()
        }
        assert {name: found[name] for name in _NAMES} == theirs, file
    assert 300 < refused < 2500
