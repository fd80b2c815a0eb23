"""Spark Structured Streaming around the pure steps: sources, operators, sinks, jobs."""
