"""Recorded rounds, decided again by quotaplane or a strategy of Pulsar's. Pure."""
