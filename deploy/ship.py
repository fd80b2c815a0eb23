"""Pack the package and what it imports for executors, and for drivers, on other machines.

Usage: ship.py PACKAGE_FOLDER VENV CACHE. Prints three paths: the package as quotaplane.zip, the
executors' environment as environment.tar.gz, and as driver.tar.gz what a driver in cluster mode
needs beside that. Each is made once per content and kept in CACHE.

The environment holds what pip installed, so executors need the same Python (version and path) as
this machine, and their own Spark; its bin/python finds the rest by pyvenv.cfg, wherever unpacked.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

EXECUTORS = (
    *("deltalake", "numpy", "pandas", "protobuf", "pyarrow", "pydantic", "pyspark", "PyYAML"),
    *("httpx", "pulsar-client"),  # if they are installed
)
"""Distributions that executors import; those that they require are shipped, too."""

DRIVERS = (
    *("prometheus-client", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    *("kafka-python", "crc32c", "lz4", "python-snappy", "zstandard"),
)
"""The same for drivers, beside what executors import."""

# A node manager starts a process for each entry, if Hadoop has no native library.
LEFT_OUT = (
    *("*.dist-info/[!M]*", "*__pycache__/*", "*/tests/*", "*/include/*", "*/py.typed"),
    *("*.a", "*.h", "*.p[xy][dxi]", "*.pyi"),
    *("tzdata/*", "pytz/zoneinfo/*", "pydantic/v1/*", "numpy/f2py/*", "httpx/_main.py"),
    *(f"pyspark/{name}/*" for name in ("bin", "data", "examples", "jars", "licenses", "sbin")),
    *(f"pyspark/{name}/*" for name in ("ml", "mllib", "pandas", "python")),
    *("pyspark/sql/connect/*", "pyarrow/*flight*", "pyarrow/src/*"),
    *("pyarrow/lib[a-z]*.so", "pyarrow/lib*.so.*.*.*"),  # the same as lib*.so.NUMBER
)
"""Their files that no program of ours opens: Spark's JVM side, for one, which executors have."""


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


def installed(names: Iterable[str]) -> dict[str, Distribution]:
    """Those of the distributions that are installed, and all that they require, by name."""
    found: dict[str, Distribution] = {}
    wanted = [*names]
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        requirements = [text for text in found[name].requires or () if "extra ==" not in text]
        wanted += [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in requirements]
    return found


def files_of(distributions: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """The shipped files of distributions: names below site-packages, and paths."""
    for each in distributions:
        for file in each.files or ():
            name = str(file)
            if not (name.startswith("..") or any(fnmatch(name, part) for part in LEFT_OUT)):
                yield name, Path(str(file.locate()))


def pack_environment(venv: Path, target: Path) -> None:
    """Tar the interpreter of ``venv`` and what executors import."""
    (libraries,) = venv.glob("lib/python*/site-packages")
    inside = libraries.relative_to(venv)
    with _tar(target) as archive:
        archive.add(venv / "pyvenv.cfg", "pyvenv.cfg")
        for python in sorted((venv / "bin").glob("python*")):
            if python.is_symlink():
                archive.add(python, f"bin/{python.name}")
        for name, file in files_of(installed(EXECUTORS).values()):
            archive.add(file, f"{inside}/{name}")


def pack_driver(target: Path) -> None:
    """Tar what drivers import and executors do not."""
    executors = installed(EXECUTORS)
    drivers = installed(DRIVERS)
    with _tar(target) as archive:
        for name, file in files_of(each for name, each in drivers.items() if name not in executors):
            archive.add(file, name)


def _tar(target: Path) -> tarfile.TarFile:
    return tarfile.open(target, "w:gz", compresslevel=3)


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
    """Make what is missing and print where the files are."""
    sources = hashlib.sha256()
    for file in package_files(Path(package_folder)):
        sources.update(f"{file}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    packages = hashlib.sha256((venv + Path(venv, ".stamp").read_text("utf-8")).encode())
    packages.update(Path(__file__).read_bytes())
    target = Path(cache, sources.hexdigest()[:16])
    print(once(target, "quotaplane.zip", lambda file: pack_package(Path(package_folder), file)))
    target = Path(cache, packages.hexdigest()[:16])
    if not (target / "driver.tar.gz").exists():
        print("packing .venv for other machines (once)", file=sys.stderr)
    print(once(target, "environment.tar.gz", lambda file: pack_environment(Path(venv), file)))
    print(once(target, "driver.tar.gz", pack_driver))


if __name__ == "__main__":
    main(*sys.argv[1:])
