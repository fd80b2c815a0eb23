"""Kafka's own client quotas: read, proposed as groups, and written back as Kafka's commands."""
