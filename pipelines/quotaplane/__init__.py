"""quotaplane: one global quota, shared fairly among many brokers."""

__version__ = "0.1.0"
