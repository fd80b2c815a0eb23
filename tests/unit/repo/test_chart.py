"""The Helm chart: its values, their schema, and the example on the page (Helm: the nightly)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import yaml

from quotabalance.settings import load_balance_settings
from quotaplane import __version__
from quotaplane.settings import load_settings, parse_settings
from tests.unit.repo.pages import ROOT

CHART: Final = ROOT / "deploy/chart"
PAGE: Final = ROOT / "docs/operate/kubernetes.md"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALID: Final = jsonschema_rs.Draft7Validator(SCHEMA)


def merged(defaults: Any, given: Any) -> Any:
    """The values that Helm makes of the chart's and a user's."""
    if not isinstance(defaults, dict) or not isinstance(given, dict):
        return given
    both = {key: merged(defaults[key], given[key]) for key in defaults.keys() & given.keys()}
    return {**defaults, **given, **both}


def example() -> dict[str, Any]:
    """The page's ``values.yaml``, with the chart's defaults."""
    text = PAGE.read_text("utf-8")
    block = text[text.index("    image:\n") : text.index("Install, and wait")]
    given = yaml.safe_load("\n".join(line[4:] for line in block.splitlines()))
    return dict(merged(VALUES, given))


def test_the_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_default_values_and_the_example_fit_the_schema() -> None:
    VALID.validate(VALUES)
    VALID.validate(example())


@pytest.mark.parametrize(
    "wrong",
    [
        {"qouta": {}},
        {"quota": {"standby": "yes"}},
        {"quota": {"replicas": 2}},
        {"storage": {"accessMode": "ReadOnlyMany"}},
        {"settings": {"checkpoint": "data/checkpoint"}},
        {"settings": {"metrics": {"job_port": None}}},
        {"secrets": {"variables": {"LIMITS_KEY": "the secret itself"}}},
        {"secrets": {"variables": {"limits-key": {"secret": "s", "key": "k"}}}},
        {"pod": {"securityContext": {}}},
    ],
)
def test_wrong_values_do_not_fit_the_schema(wrong: dict[str, Any]) -> None:
    assert not VALID.is_valid(merged(VALUES, wrong))


def test_the_schema_has_every_value_and_no_other() -> None:
    """Where the chart has an object with fixed keys, so that a misspelt one is found."""
    for key, schema in SCHEMA["properties"].items():
        if schema.get("additionalProperties") is False:
            assert schema["properties"].keys() == VALUES[key].keys(), key
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()


@pytest.mark.parametrize("name", ["kafka", "pulsar"])
def test_the_settings_are_settings_of_both_jobs(name: str, tmp_path: Path) -> None:
    """With the repository's settings of a transport, as the comment says."""
    transport = yaml.safe_load((ROOT / f"conf/{name}.yaml").read_text("utf-8"))["transport"]
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({**VALUES["settings"], "transport": transport, "balance": {}}))
    assert load_settings(str(file)).metrics.job_port == 9464
    assert load_balance_settings(file).metrics.balance_port == 9466


def test_the_settings_of_the_example_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMITS_KEY", "k" * 64)
    assert parse_settings(example()["settings"]).limits.signing is not None


def test_every_secret_that_the_example_names_is_a_variable() -> None:
    values = example()
    named = set(re.findall(r"\$\{(\w+)\}", json.dumps(values["settings"])))
    assert named == values["secrets"]["variables"].keys()


def test_every_value_that_a_template_reads_exists() -> None:
    texts = "".join(file.read_text("utf-8") for file in (CHART / "templates").iterdir())
    read = set(re.findall(r"(?:\$values|\.Values)\.(\w+(?:\.\w+)*)", texts))
    assert len(read) > 20
    given = {f"settings.{key}" for key in ("transport", "transport.kind", "server", "balance")}
    for path in read - given:
        value = VALUES
        for key in path.split("."):
            assert key in value, path
            value = value[key]
