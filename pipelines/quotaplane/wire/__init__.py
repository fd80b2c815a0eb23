"""Conversion between bytes and columns: reports, limits, and the operator's inputs.

Pure: no Spark, no clock, no I/O. ``schemas/*.proto`` define the formats; docs/reference/wire.md
explains which input is refused, and why.
"""
