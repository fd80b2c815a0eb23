"""The exit codes that docs/reference/cli.md lists."""

from __future__ import annotations

import re

from tests.unit.repo.cli_reference import PAGE


def documented_codes() -> set[int]:
    """All of them."""
    table = PAGE.read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+)\b", table, re.MULTILINE)}
