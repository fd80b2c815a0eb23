"""One short run with real servers; ``make outside`` makes long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.outside import kafka_run
from tests.outside.checks import violations


@pytest.mark.soak
def test_a_run_with_kafka(tmp_path: Path) -> None:
    evidence = kafka_run.run(1, 3.0, tmp_path, print)
    print(kafka_run.summary(evidence))
    assert len(evidence.published) > 0
    assert not violations(evidence)
