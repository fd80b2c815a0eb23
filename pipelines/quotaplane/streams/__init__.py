"""Spark around the pure steps: sources, operators, sinks, jobs."""
