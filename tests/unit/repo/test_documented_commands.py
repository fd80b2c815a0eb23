"""The commands in README.md, examples/ and two pages of docs/ do what the pages say.

The two are docs/reference/cli.md and docs/start/day-one.md. The latter as a whole, with its job, is
in tests/spark/test_day_one.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import in_nightly
from tests.unit.repo.documented_commands import PAGES, ROOT, Sandbox, check_options, commands_in

COMMANDS = {page: commands_in(page) for page in PAGES}


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


EXAMPLES = [page for page in PAGES if "examples" in page.parts]
OTHERS = [page for page in PAGES if page not in EXAMPLES]


@pytest.mark.parametrize("page", [*OTHERS, *EXAMPLES[:3], *in_nightly(*EXAMPLES[3:])], ids=_id)
def test_commands_run_as_written(page: Path, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "repository")
    for command in COMMANDS[page]:
        if not command.starts_spark and not command.needs_more:
            sandbox.run(command)


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_commands_that_need_more_have_only_options_that_exist(page: Path) -> None:
    for command in COMMANDS[page]:
        if command.is_ours and (command.starts_spark or command.needs_more):
            check_options(command.words)


def test_the_commands_are_found() -> None:
    counts = {_id(page): len(found) for page, found in COMMANDS.items()}
    assert counts["examples/groups/README.md"] >= 9
    assert counts["README.md"] >= 10
    shown = [command for found in COMMANDS.values() for command in found if command.output]
    assert len(shown) >= 20


def test_every_example_is_shown() -> None:
    """No file of examples/ is in no page."""
    text = "".join(page.read_text("utf-8") for page in PAGES)
    folders = ("quotas/",)
    for file in (ROOT / "examples").rglob("*"):
        if file.is_file() and file.suffix not in (".md", ".pyc"):
            named = str(file.relative_to(ROOT / "examples"))
            assert named in text or any(folder in named for folder in folders), named


def test_the_agent_is_the_one_of_the_page() -> None:
    block = (ROOT / "docs/reference/integrate.md").read_text("utf-8").split("```python\n")[1]
    agent = (ROOT / "examples" / "agent" / "agent.py").read_text("utf-8")
    assert agent == block.partition("```")[0]
