"""Questions to the history: audits and any other SQL, answered by DuckDB or by Spark.

The same SQL text runs on both engines (``duckdb_engine``, ``spark_engine``). Both show the same
views: every table of the history, and those of ``views`` and ``group_feed``.
"""
