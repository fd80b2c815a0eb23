"""Bytes to columns and back: reports, limits, and the events between decoder and operator.

Pure: no Spark, no clock, no I/O. The formats themselves are in ``schemas/*.proto``; docs/wire.md
tells what is refused and why.
"""
