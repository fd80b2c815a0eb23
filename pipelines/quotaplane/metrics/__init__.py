"""What running programs show to a monitoring system: Prometheus metrics, traces of rounds."""
