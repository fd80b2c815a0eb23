"""``quotaplane balance bundles``: namespaces that have many idle bundles."""

from __future__ import annotations

import argparse
import json

from quotabalance.cli.record_options import add_record_options, times_of
from quotabalance.planning.options import BalanceOptions
from quotabalance.record.bundle_use import bundle_use, too_many
from quotabalance.record.recorded_rounds import of_cluster, rows_between
from quotaplane.cli.history_options import history_of
from quotaplane.console.answers import print_answer
from quotaplane.errors import InputError
from quotaplane.history.store import require_history

_EPILOG = """\
Lists the namespaces with at least four times the bundles that their load needs, most of them
without traffic in all that time. Pulsar 4.0 has no way to undo a split: no command merges bundles.
Each one costs entries in the metadata store and in every load report, and time at a failover. To
have fewer, create a namespace with as many bundles as are needed (pulsar-admin namespaces create
--bundles N), move producers and consumers of the topics there, and delete the old one; keep
loadBalancerNamespaceMaximumBundles low enough that it does not happen again.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane balance bundles``."""
    parser.epilog = _EPILOG
    add_record_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the namespaces with many idle bundles.

    Raises:
        InputError, ConfigError, HistoryError: an option is wrong, or the record can't be read.
    """
    history = history_of(args)
    require_history(history, "the balance job creates one")
    load = of_cluster(rows_between(history, "load", *times_of(args)), args.cluster)
    if not load.num_rows:
        raise InputError("the record has no load reports in that time")
    use = bundle_use(load, BalanceOptions().bundle_limits)
    found = too_many(use).to_pylist()
    table = tuple(use.column_names), [tuple(row.values()) for row in found]
    total = {"namespaces": use.num_rows, "bundles": sum(use["bundles"].to_pylist())}
    print_answer(
        args,
        lambda: json.dumps({**total, "too_many": found}),
        lambda: (
            table
            if found
            else "none of {namespaces} namespaces with {bundles} bundles has many idle ones".format(
                **total
            )
        ),
        lambda: table,
    )
    return 0
