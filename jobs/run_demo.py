"""Watch the quota loop divide fairly: the real job on a simulated cluster, a minute or two."""

from __future__ import annotations

from quotaplane.demo.run import main
from quotaplane.streams.script import run_job

if __name__ == "__main__":
    run_job(main)
