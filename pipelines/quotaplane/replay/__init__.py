"""Recorded rounds of the quota job, run again: exactly, or with another law, settings or quotas."""
