"""A remote Spark master is used only with authentication and encryption."""

from __future__ import annotations

import re

import pytest

from quotaplane.errors import ConfigError
from quotaplane.streams.spark_protection import check_protected, missing_protections
from tests.unit.repo.pages import ROOT

PROTECTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "hush",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
    "spark.ui.killEnabled": "false",
}
STANDALONE = "spark://10.0.0.1:7077"


@pytest.mark.parametrize("master", [STANDALONE, "k8s://https://10.0.0.1:6443", "yarn"])
@pytest.mark.parametrize("key", PROTECTED)
def test_each_protection_is_needed(master: str, key: str) -> None:
    options = {"spark.master": master, **PROTECTED}
    check_protected(options)
    wrong = {"spark.authenticate.secret": "", "spark.ui.killEnabled": "true"}.get(key, "false")
    without = {name: value for name, value in options.items() if name != key}
    for missing in (without, options | {key: wrong}):
        if key == "spark.authenticate.secret" and master != STANDALONE:
            check_protected(missing)  # these cluster managers make a secret themselves
            continue
        with pytest.raises(ConfigError) as caught:
            check_protected(missing)
        line = str(caught.value)
        assert line.startswith(f"Spark master {master}: without protection everybody")
        assert re.findall(r"(spark\.[a-zA-Z.]+)=", line) == [key]
        assert line.endswith("security.allow_unprotected_spark: true")
        assert caught.value.exit_code == 2
        assert "hush" not in line
        assert "\n" not in line


def test_tls_between_processes_counts_as_encryption() -> None:
    options = {"spark.master": STANDALONE, **PROTECTED, "spark.network.crypto.enabled": "false"}
    assert missing_protections(options) == ["spark.network.crypto.enabled=true"]
    assert missing_protections(options | {"spark.ssl.rpc.enabled": "true"}) == []
    # TLS of the web pages only
    assert missing_protections(options | {"spark.ssl.enabled": "true"}) != []


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_processes_of_this_machine_need_none(master: str) -> None:
    check_protected({"spark.master": master})


def test_the_documentation_has_a_file_that_passes() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text("utf-8")
    section = page.partition("## A Spark cluster")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^    (spark\.\S+)\s+(\S+)$", section, re.MULTILINE))
    defaults = (ROOT / "conf" / "spark-defaults.conf").read_text("utf-8")
    ours = dict(re.findall(r"^(spark\.\S+)\s+(.+)$", defaults, re.MULTILINE))
    check_protected({"spark.master": STANDALONE, **ours, **shown})
