"""``quotaplane groups export kafka``: groups as commands that set Kafka's own quotas."""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Final

from quotaplane.cli.import_kafka import brokers_of, kafka_of
from quotaplane.console.terminal import one_line
from quotaplane.history.store import has_table
from quotaplane.history.tables import ATTACHMENTS
from quotaplane.kafka_quotas.commands import export
from quotaplane.registry.attachments import list_attachments
from quotaplane.registry.table import list_groups
from quotaplane.settings import History

_PLACE: Final = "HOST:9092"
_LOGIN: Final = ("--command-config", "client.properties")
"""The tool's own settings of TLS and logins."""


def run(history: History, args: argparse.Namespace) -> None:
    """Print the commands, below comments about what Kafka can't express.

    Raises:
        ConfigError: it is not known how many brokers there are.
        TransportError: the cluster can't be reached, or refuses.
        HistoryError: the tables can't be read.
    """
    brokers, transport = brokers_of(args), kafka_of(args)
    cluster = ["--bootstrap-server", transport.bootstrap_servers if transport else _PLACE]
    if transport and transport.security.protocol != "PLAINTEXT":
        cluster += _LOGIN
    attached = defaultdict(list)
    if has_table(history, ATTACHMENTS.name):
        for row in list_attachments(history).to_pylist():
            attached[row["resource_group"]].append(f"{row['kind']} {row['name']}")
    print(f"# each quota divided by {brokers} brokers, controller mutations whole")
    for line in export(list_groups(history).to_pylist(), attached, brokers, cluster):
        print(one_line(line))
