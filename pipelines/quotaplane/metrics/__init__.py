"""Monitoring of running programs: Prometheus metrics, and traces of rounds."""
