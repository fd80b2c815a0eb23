"""Write the lock files: the packages that setup.cfg asks for, with the SHA-256 of all their files.

Usage: python deploy/lock.py [--keep]; --keep: the same versions, only their hashes anew.
deploy/lock.txt has what jobs and commands need; beside it deploy/spark-VERSION/lock.txt has what a
version of Spark needs, lock-EXTRA.txt what an extra needs, and lock-build.txt what builds packages.
One resolution is for every supported Python and platform: versions that differ get a marker.
Nothing is installed. Needs uv (https://docs.astral.sh/uv/), as pip knows the hashes of only those
files that it would install here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
RUNTIME = ("spark", "kafka", "pulsar", "admin", "server")
"""Extras that the launcher always installs."""
OTHERS = ("test", "tracing")
OF_SPARK = ("pyspark==", "py4j==", "delta-spark==")
"""The packages that differ between versions of Spark."""
LEAST_PYTHON = "3.10"
HEADER = """\
# {what}
# Every package, needed directly or not, at the version that was tested, and its files' hashes.
# Written by deploy/lock.py; docs/adr/0002-versions.md says when and why to change it.
"""
_ENTRY = re.compile(r"^\S.*(?:\n[ ]+\S.*)*", re.MULTILINE)


def resolve(source: Path, extras: tuple[str, ...], constraints: list[Path]) -> list[str]:
    """Entries of a requirements file: ``name==version ; marker``, and its hashes on more lines."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("lock.py: uv is not on the PATH: pip install uv")
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", LEAST_PYTHON]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url"]
    command += [word for extra in extras for word in ("--extra", extra)]
    command += [word for file in constraints for word in ("--constraints", str(file))]
    done = subprocess.run(
        [*command, str(source)], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return _ENTRY.findall(done.stdout)


def write(name: str, what: str, entries: list[str]) -> Path:
    """Write a lock file; returns its path."""
    file = DEPLOY / name
    file.write_text(HEADER.format(what=what) + "".join(f"{entry}\n" for entry in entries), "utf-8")
    return file


def main(arguments: list[str]) -> None:
    """Write all lock files."""
    keep = arguments == ["--keep"]
    wishes = [DEPLOY / "wishes.txt"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if keep:
            wishes += [Path(shutil.copy(file, folder)) for file in DEPLOY.glob("lock*.txt")]
        builders = folder / "build.in"
        builders.write_text("setuptools>=77\nwheel\n", "utf-8")
        built = resolve(builders, (), wishes)
        wishes.append(write("lock-build.txt", "What builds packages.", built))
        for place in sorted(DEPLOY.glob("spark-*")):  # the oldest first: lock.txt is from it
            lock_spark(place, wishes, folder / place.name, keep=keep)
        runtime = [DEPLOY / name for name in ("lock-build.txt", "lock.txt", "spark-4.0/lock.txt")]
        there = _ENTRY.findall("\n".join(file.read_text("utf-8") for file in runtime))
        for extra in OTHERS:
            entries = resolve(ROOT / "setup.cfg", (*RUNTIME, extra), [*wishes, *runtime])
            more = [entry for entry in entries if entry not in there]
            write(f"lock-{extra}.txt", f"What the extra {extra} needs beside lock.txt.", more)


def lock_spark(place: Path, wishes: list[Path], pin: Path, *, keep: bool) -> None:
    """Write the lock of a version of Spark; the first also lock.txt, which joins ``wishes``."""
    version = place.name.removeprefix("spark-")
    pin.write_text(f"pyspark=={version}.*\n", "utf-8")
    if keep:
        shutil.copy(place / "lock.txt", pin)
    entries = resolve(ROOT / "setup.cfg", RUNTIME, [*wishes, pin])
    lock = DEPLOY / "lock.txt"
    if lock not in wishes:
        rest = [entry for entry in entries if not entry.startswith(OF_SPARK)]
        wishes.append(write(lock.name, "What jobs and commands need, beside Spark.", rest))
    common = _ENTRY.findall(lock.read_text("utf-8"))
    more = [entry for entry in entries if entry not in common]
    write(f"{place.name}/lock.txt", f"What Spark {version} needs beside lock.txt.", more)


if __name__ == "__main__":
    main(sys.argv[1:])
