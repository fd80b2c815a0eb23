"""Pulsar as a PySpark Python Data Source, ``format("pulsar")``: see docs/pulsar.md.

What is needed of pulsar-client without Spark (offsets, readers, the producer) is in files of its
own; only ``source.py`` imports pyspark.
"""
