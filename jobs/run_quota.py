"""Run the quota job until stopped: reads reports, publishes limits, writes the history."""

from __future__ import annotations

from collections.abc import Sequence

from quotaplane.option_parser import OptionParser
from quotaplane.settings import load_settings
from quotaplane.streams.job import run_stream_job
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.script import add_skip_batch, conf_parser, run_job
from quotaplane.streams.session import build_session


def parser() -> OptionParser:
    options = conf_parser("quota", __doc__)
    add_skip_batch(options, "reports")
    return options


def main(argv: Sequence[str]) -> None:
    args = parser().parse_args(argv)
    spec = QuotaSpec(load_settings(args.conf))
    run_stream_job(spec, lambda log: build_session("quotaplane quota", log=log), args.skip_batch)


if __name__ == "__main__":
    run_job(main)
