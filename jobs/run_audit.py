"""Audit the history: limits exceeded, reaction times to quota changes, silent brokers."""

from __future__ import annotations

from quotaplane.cli.audit import main
from quotaplane.streams.script import run_job

if __name__ == "__main__":
    run_job(main)
