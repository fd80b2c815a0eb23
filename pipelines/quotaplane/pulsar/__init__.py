"""Pulsar as a PySpark Python Data Source, ``format("pulsar")``: see docs/operate/pulsar.md.

The parts that need only pulsar-client (offsets, readers, the producer) don't import pyspark; only
``source.py`` does.
"""
