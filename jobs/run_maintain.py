"""Expire, compact and vacuum the history; safe while the quota job runs."""

from __future__ import annotations

from quotaplane.cli.maintain import main
from quotaplane.streams.script import run_job

if __name__ == "__main__":
    run_job(main)
