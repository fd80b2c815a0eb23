"""Keeps the table resource_groups as a Pulsar cluster's groups are."""
