"""Metrics as Prometheus reads them, as a mapping."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

Series = dict[str, dict[tuple[str, ...], float]]


def parsed(text: str) -> Series:
    """Samples by name, then by the values of their labels in the order of the labels' names."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def scraped(registry: CollectorRegistry) -> Series:
    return parsed(generate_latest(registry).decode())
