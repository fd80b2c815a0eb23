"""Ask the history: who exceeded its limit, how fast did quotas change, who went silent."""

from __future__ import annotations

from quotaplane.cli.audit import main
from quotaplane.streams.script import run_job

if __name__ == "__main__":
    run_job(main)
