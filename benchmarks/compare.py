"""Compares the quota job of another commit with that of the working tree: ``make bench-compare``.

The two run in turn, pair by pair, each in a process of its own with a Kafka of its own. A ratio is
that of one pair, so a machine that gets slower over time distorts no ratio.

    python -m benchmarks.compare COMMIT --pairs 3 --rounds 6
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.program import ROOT
from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import ConfigError
from quotaplane.streams.script import run_job

_LOCKS: Final = "deploy/lock*.txt"
Found = dict[str, float]


def main(argv: Sequence[str]) -> None:
    """Measure, and print a table.

    Raises:
        ConfigError: there is no such commit, or it needs another environment.
    """
    parser = OptionParser(prog="make bench-compare", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=3, help="default: 3")
    parser.add_argument("--rounds", type=int, default=6, help="warm rounds of a run, default: 6")
    parser.add_argument("--groups", type=int, default=100_000, help="default: 100,000")
    parser.add_argument(
        "--keep", type=Path, help="a file for the medians, for the page of `make bench`"
    )
    args = parser.parse_args(argv)
    options = ["--only", "cost", "--rounds", str(args.rounds), "--groups", str(args.groups)]
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "commit")
        _git("worktree", "add", "--detach", str(other), args.commit)
        try:
            _prepare(other, args.commit)
            pairs = []
            for number in range(args.pairs):
                # Each of the two is first in every other pair.
                order = (other, ROOT) if number % 2 == 0 else (ROOT, other)
                found = {tree: _run(tree, options) for tree in order}
                pairs.append((found[other], found[ROOT]))
                print(f"pair {number + 1}: {_ratio(pairs[-1], 'processor'):.3f}", flush=True)
        finally:
            _git("worktree", "remove", "--force", str(other))
    print("\n".join(table(pairs, args.commit)))
    if args.keep:
        kept = {"commit": args.commit, "table": table(pairs, args.commit)}
        args.keep.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table(pairs: Sequence[tuple[Found, Found]], commit: str) -> list[str]:
    r"""Medians of both, and the median of the pairs' ratios with their range.

    >>> print(*table([({"round": 4.0}, {"round": 3.0}), ({"round": 5.0}, {"round": 4.0})], "v1"),
    ...     sep="\n")
    | seconds a round | v1 | here | ratio |
    |---|---|---|---|
    | round | 4.500 | 3.500 | 0.775 (0.750 to 0.800) |
    """
    lines = [f"| seconds a round | {commit} | here | ratio |", "|---|---|---|---|"]
    for name in pairs[0][0]:
        before, after = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        ratios = [_ratio(pair, name) for pair in pairs]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append(f"| {name} | {before:.3f} | {after:.3f} | {spread} |")
    return lines


def _ratio(pair: tuple[Found, Found], name: str) -> float:
    before, after = pair
    return after[name] / before[name] if before[name] else float("nan")


def _prepare(tree: Path, commit: str) -> None:
    """Give a checkout this tree's environment, and its way to measure."""
    if _locked(tree) != _locked(ROOT):
        raise ConfigError(f"{commit}: its {_LOCKS} differ, so it needs another environment")
    (tree / ".venv").symlink_to(ROOT / ".venv")
    shutil.rmtree(tree / "benchmarks")
    shutil.copytree(ROOT / "benchmarks", tree / "benchmarks")


def _locked(tree: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in tree.glob(_LOCKS)}


def _run(tree: Path, options: Sequence[str]) -> Found:
    command = ["./spark-submit.sh", "benchmarks/quota_loop.py", "--driver-memory", "4g", *options]
    # The environment is that of the working tree, and so is the package in it.
    env = {**os.environ, "PYTHONPATH": str(tree / "pipelines")}
    done = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: Found = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _git(*words: str) -> None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(" ".join(done.stderr.split()))


if __name__ == "__main__":
    run_job(main)
