"""quotaplane: shares one global quota fairly among many brokers."""

__version__ = "0.1.0"
