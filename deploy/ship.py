"""Pack the package and its Python environment for executors on other machines.

Usage: ship.py PACKAGE_FOLDER VENV CACHE. Prints two paths: the package as quotaplane.zip and the
environment as environment.tar.gz. Each is made once per content and kept in CACHE.

The environment holds what pip installed, so executors need the same Python (version and path) as
this machine, and their own Spark; its bin/python finds the rest by pyvenv.cfg, wherever unpacked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

# Spark's JVM side (executors have theirs), what only drivers use, and tools
LEFT_OUT = (
    *(f"pyspark/{name}" for name in ("jars", "examples", "data", "licenses", "bin", "sbin")),
    *("pyarrow/include", "pyarrow/tests", "pandas/tests", "plotly", "rich"),
    *("pip", "setuptools", "mypy", "mypyc", "ruff", "grpc", "grpc_tools", "hypothesis"),
)


def pack_package(folder: Path, target: Path) -> None:
    """Zip the sources below ``folder``, always to the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in package_files(folder):
            # fixed times make the same sources the same file
            info = zipfile.ZipInfo(str(file.relative_to(folder)))
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)


def package_files(folder: Path) -> list[Path]:
    """The files that make up the import packages, in a fixed order."""
    files = (file for name in ("quotaplane", "quotabalance") for file in (folder / name).rglob("*"))
    return sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)


def pack_environment(venv: Path, target: Path) -> None:
    """Tar the interpreter and the libraries of ``venv``, without what executors do not use."""

    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        _, _, inside = info.name.partition("site-packages/")
        # the editable install points into this checkout
        unused = inside in LEFT_OUT or inside.startswith("__editable__")
        return None if unused or info.name.endswith("__pycache__") else info

    # level 1: four times as fast as the default for a file that is only a few percent larger
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        archive.add(venv / "pyvenv.cfg", "pyvenv.cfg")
        for python in sorted((venv / "bin").glob("python*")):
            archive.add(python, f"bin/{python.name}")
        archive.add(venv / "lib", "lib", filter=keep)


def once(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """``folder/name``, made if it is not there; whole even when two processes do so at once."""
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=folder, prefix=name)
        os.close(handle)
        make(Path(new))
        Path(new).replace(target)
    return target


def main(package_folder: str, venv: str, cache: str) -> None:
    """Make what is missing and print where both files are."""
    sources = hashlib.sha256()
    for file in package_files(Path(package_folder)):
        sources.update(f"{file}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    packages = hashlib.sha256((venv + Path(venv, ".stamp").read_text("utf-8")).encode())
    target = Path(cache, sources.hexdigest()[:16])
    print(once(target, "quotaplane.zip", lambda file: pack_package(Path(package_folder), file)))
    target = Path(cache, packages.hexdigest()[:16])
    if not (target / "environment.tar.gz").exists():
        print("packing .venv for the executors (once)", file=sys.stderr)
    print(once(target, "environment.tar.gz", lambda file: pack_environment(Path(venv), file)))


if __name__ == "__main__":
    main(*sys.argv[1:])
