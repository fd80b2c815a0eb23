"""Options of the JVMs that tests start."""

from __future__ import annotations

from typing import Final

SHORT_LIVED: Final = (
    "-Xss4m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)
"""For runs of up to a minute; conf/spark-defaults.conf says why."""
