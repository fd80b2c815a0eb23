"""The plugin's own tests, with JUnit, and its version."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from quotaplane import __version__
from tests.jvm.kafka_plugin import PLUGIN, run_junit

LEAST_TESTS = 100


def test_junit() -> None:
    (successful,) = re.findall(r"(\d+) tests successful", run_junit())
    assert int(successful) >= LEAST_TESTS


def test_the_version_is_that_of_the_package() -> None:
    pom = ElementTree.parse(PLUGIN / "pom.xml")
    assert pom.findtext("{http://maven.apache.org/POM/4.0.0}version") == __version__
