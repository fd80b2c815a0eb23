"""Run the quota loop until stopped: reports in, limits out, history in Delta."""

from __future__ import annotations

from collections.abc import Sequence

from quotaplane.settings import load_settings
from quotaplane.streams.entry import conf_parser, run_job
from quotaplane.streams.quota import run_quota
from quotaplane.streams.session import build_session


def main(argv: Sequence[str]) -> None:
    settings = load_settings(conf_parser("quota").parse_args(argv).conf)
    run_quota(settings, lambda log: build_session("quotaplane quota", log=log))


if __name__ == "__main__":
    run_job(main)
