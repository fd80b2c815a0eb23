"""The quota job on a Spark cluster of one and two executors: ``make bench-scale-out``."""
