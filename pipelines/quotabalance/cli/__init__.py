"""The commands ``quotaplane balance ...``."""
