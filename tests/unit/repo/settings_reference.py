"""The tables of docs/reference/configuration.md, made from the declarations of all settings."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from quotabalance.settings import BalanceSettings
from quotaplane.settings import DeltaTransport, KafkaTransport, PulsarTransport

TRANSPORTS: Final = {"delta": DeltaTransport, "kafka": KafkaTransport, "pulsar": PulsarTransport}


class Setting(NamedTuple):
    """A setting: a value of the file that has no keys of its own."""

    key: str
    default: str
    text: str


def settings() -> dict[str, list[Setting]]:
    """All settings, by the heading of their section."""
    found: dict[str, list[Setting]] = {}
    for kind, transport in TRANSPORTS.items():
        found[f"transport, {kind}"] = list(_settings_of(transport, "transport"))
    for one in _settings_of(BalanceSettings, "", without="transport"):
        section = one.key.partition(".")[0] if "." in one.key else "at the top"
        found.setdefault(section, []).append(one)
    return found


def _settings_of(model: type[BaseModel], prefix: str, without: str = "") -> Iterator[Setting]:
    texts = _texts(model)
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}".strip(".")
        parts = list(_models(field.annotation))
        if name != without and not parts:
            yield Setting(key, _default(field), texts.get(name, ""))
        for part in parts if name != without else ():
            yield from _settings_of(part, key)


def _models(declared: Any) -> Iterator[type[BaseModel]]:
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        yield declared
    for part in get_args(declared):
        yield from _models(part)


def _texts(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings after the fields of a model, which Python itself does not keep."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("quota"):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
            for field, text in pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    found[field.target.id] = " ".join(text.value.value.split())  # type: ignore
    return found


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return ""
    value = value.value if isinstance(value, Enum) else value
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def reference() -> str:
    """The tables as the page has them."""
    parts = []
    for heading, rows in settings().items():
        lines = ["| setting | default | what it is, and who sets it |", "|---|---|---|"]
        for one in rows:
            text = one.text.replace("``", "`").replace("|", "\\|")
            lines.append(f"| `{one.key}` | {one.default} | {text} |")
        parts.append(f"## {heading}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
