"""Write deploy/lock.txt: what pip chooses for setup.cfg, for every supported Python.

Usage: python deploy/lock.py python3.10 python3.11 python3.12 python3.13
Versions that are not the same for all get an environment marker. Nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "kafka,pulsar,admin,server,test"
HEADER = """\
# Every package that setup.cfg asks for, directly or not, at the version that was tested.
# Written by deploy/lock.py; docs/adr/0002-versions.md says when and why to change it.
"""


def resolve(python: str) -> tuple[str, dict[str, str]]:
    """Python's version as "3.11", and {package: version} that pip would install for it."""
    report = subprocess.run(
        # the wishes that setup.cfg can't say: they are about this moment, not about the package
        [
            *(python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *("--report", "-", "-c", str(ROOT / "deploy" / "wishes.txt")),
            *("setuptools", "wheel", f"{ROOT}[{EXTRAS}]"),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    answer = json.loads(report.stdout)
    found = {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"]
        for item in answer["install"]
    }
    del found["quotaplane"]
    return answer["environment"]["python_version"], found


def merge(answers: dict[str, dict[str, str]]) -> list[str]:
    """Lines of a requirements file that gives each Python its own answer."""
    lines = []
    for name in sorted({name for found in answers.values() for name in found}):
        pythons = defaultdict(list)
        for python, found in answers.items():
            if name in found:
                pythons[found[name]].append(python)
        for version, where in pythons.items():
            marker = " or ".join(f'python_version == "{python}"' for python in where)
            everywhere = len(where) == len(answers)
            lines.append(f"{name}=={version}" + ("" if everywhere else f" ; {marker}"))
    return lines


def main(pythons: list[str]) -> None:
    """Ask every given interpreter's pip and write the lock."""
    lines = merge(dict(resolve(python) for python in pythons))
    (ROOT / "deploy" / "lock.txt").write_text(HEADER + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
