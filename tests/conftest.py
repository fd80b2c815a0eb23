"""What every kind of test may ask for; nothing starts before a test does so."""

from __future__ import annotations

pytest_plugins = ["tests.servers.fixtures", "tests.spark.fixtures"]
