"""Imports go one way: as the tables of docs/explain/architecture.md say, which are read here."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.unit.repo.pages import ROOT

PACKAGES: Final = [ROOT / "pipelines" / name for name in ("quotaplane", "quotabalance")]
PAGE: Final = ROOT / "docs/explain/architecture.md"
SERVERS: Final = ("pyspark", "deltalake", "httpx", "kafka", "pulsar")
IMPURE: Final = {*SERVERS, "asyncio", "threading", "time", "os", "pathlib", "logging", "socket"}
GROUND: Final = "files in the root"


class Room(NamedTuple):
    """A folder of a package."""

    imports: set[str]
    """The rooms it may import; every room may import ``GROUND``."""
    pure: bool
    """It uses no Spark, server, clock or disk."""


def _rooms() -> dict[str, Room]:
    rows = re.findall(
        r"^\| (?:`([a-z_/]+)/`|files in the root) \| (.+) \| (.+) \|$",
        PAGE.read_text("utf-8"),
        re.M,
    )
    return {
        name.replace("/", ".") or GROUND: Room(
            set() if imports in ("nothing of ours", "the root only") else {*imports.split(", ")},
            holds.endswith("; pure"),
        )
        for name, holds, imports in rows
    }


ROOMS: Final = _rooms()


def _modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            if "pb" not in file.parts:
                parts = file.relative_to(package.parent).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = file
    return found


MODULES: Final = _modules()


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def _imports(module: str) -> set[str]:
    """The other modules of ours that one imports anywhere, also only for a type checker."""
    found = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return found & MODULES.keys() - {module}


def _room(module: str) -> str:
    parts = module.removeprefix("quotaplane.").split(".")
    for length in (2, 1):
        name = ".".join(parts[:length])
        if len(parts) >= length and name in ROOMS:
            return name
    return GROUND


def test_every_folder_is_a_room() -> None:
    quotaplane, quotabalance = PACKAGES
    folders = {path.parent.relative_to(quotaplane) for path in quotaplane.rglob("*.py")}
    folders |= {path.parent.relative_to(ROOT / "pipelines") for path in quotabalance.rglob("*.py")}
    names = {".".join(folder.parts) or GROUND for folder in folders}
    assert names - {"wire.pb", "quotabalance.wire.pb"} == set(ROOMS)


def test_no_file_imports_itself_in_a_circle() -> None:
    try:
        TopologicalSorter({module: _imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_imports_go_where_they_may_and_no_leave_is_unused() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    forbidden = []
    for module in MODULES:
        here = _room(module)
        for other in _imports(module):
            there = _room(other)
            if there in (here, GROUND) or module == "quotaplane.__main__":
                continue
            used[here].add(there)
            if there not in ROOMS[here].imports:
                forbidden.append(f"{module} imports {other}: {here} may not import {there}")
    assert not forbidden, "\n".join(sorted(forbidden))
    unused = {name: room.imports - used[name] for name, room in ROOMS.items()}
    assert not {name: rooms for name, rooms in unused.items() if rooms}


def test_a_pure_room_needs_neither_spark_nor_a_server() -> None:
    code = (
        "import importlib, sys\n"
        f"for module in {sorted(m for m in MODULES if ROOMS[_room(m)].pure)}:\n"
        "    importlib.import_module(module)\n"
        f"    if found := {set(SERVERS)} & {{m.partition('.')[0] for m in sys.modules}}:\n"
        "        sys.exit(f'{module} imports {found}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_pure_room_asks_no_clock_and_no_disk() -> None:
    found = []
    for module in MODULES:
        if ROOMS[_room(module)].pure:
            for node in ast.walk(_tree(module)):
                names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                found += [f"{module}: {n}" for n in names if n.partition(".")[0] in IMPURE]
    assert not found


def test_quotaplane_runs_without_the_balancer(tmp_path: Path) -> None:
    (tmp_path / "quotaplane").symlink_to(PACKAGES[0])
    code = (
        f"import sys\nsys.path[:0] = [{str(tmp_path)!r}]\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'quotabalance':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from quotaplane.cli.main import COMMANDS\n"
        "from quotaplane.history.tables import TABLES\n"
        "from quotaplane.metrics.of_programs import PROGRAMS\n"
        "from quotaplane.settings import load_settings\n"
        f"load_settings({str(ROOT / 'conf' / 'local.yaml')!r})\n"
        "import quotaplane.server.app\n"
        "print('balance' in {*COMMANDS, *PROGRAMS}, 'load' in TABLES)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


SAME_MEANING: Final = {
    *(
        "__init__",
        "audit",
        "groups",
        "job",
        "options",
        "policies",
        "program",
        "pulsar",
        "step",
        "tables",
    )
}
"""Names of files that several rooms have: of the same thing, at different levels or in one room's
own sense (options of the data source and of the balancer, policies of groups and of brokers)."""


def test_two_files_or_classes_of_one_name_are_the_same_thing() -> None:
    places = defaultdict(list)
    for module, file in MODULES.items():
        if file.stem not in SAME_MEANING:
            places[f"{file.stem}.py"].append(module)
        for node in _tree(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
