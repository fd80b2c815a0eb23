"""The history: Delta tables of all reports, decisions and published limits."""
