"""Run the real quota job on a simulated cluster for a minute or two, as a demonstration."""

from __future__ import annotations

from quotaplane.demo.run import main
from quotaplane.streams.script import run_job

if __name__ == "__main__":
    run_job(main)
