"""``quotaplane groups import kafka``: proposes groups from Kafka's own client quotas.

They come from the cluster itself, from what ``kafka-configs.sh`` printed, or from Strimzi's users.
``--apply`` makes all groups in one commit of the table. Nothing is written to Kafka.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final, NamedTuple

import numpy as np

from quotaplane.cli.group_edits import author_of
from quotaplane.cli.history_options import history_of
from quotaplane.cli.kafka_answer import as_json, closing_lines, import_rows
from quotaplane.console.answers import json_lines, print_answer, table_text
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import ConfigError, InputError
from quotaplane.history.store import has_table, require_history
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.kafka_quotas.client_quotas import ClientQuotas, FoundQuota, gather
from quotaplane.kafka_quotas.described import is_described, read_described
from quotaplane.kafka_quotas.kafka_users import read_kafka_users
from quotaplane.kafka_quotas.proposals import EntityProposal, EntityState, propose
from quotaplane.model import DIMENSIONS, MAX_RATE, RATE_COLUMNS, FloatArray
from quotaplane.parsing.strict_json import read_text, source_name
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_status import standing_leases
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.table import change_groups, read_groups
from quotaplane.settings import History, KafkaTransport, load_settings

_MOST_BYTES: Final = 64 << 20
"""In a file: 500,000 lines of kafka-configs.sh, or 50,000 users as kubectl prints them."""
_MOST_BROKERS: Final = 100_000


class _There(NamedTuple):
    """The groups that exist."""

    quotas: dict[str, FloatArray]
    """(dimensions,) by name; inf = unlimited."""
    used: dict[str, FloatArray]
    """(dimensions,) by name, per second on all brokers; NaN = unknown."""
    version: int | None
    """The table's; None: there is no table."""


def run(args: argparse.Namespace) -> int:
    """Print the proposals; with ``--apply`` make the groups.

    Raises:
        ConfigError: the settings or options are wrong, or there is no history.
        InputError: a file is wrong, or has no quotas.
        TransportError: the cluster can't be reached, or refuses.
        HistoryError: the tables can't be read or written.
    """
    by, factor = author_of(args), args.factor
    if factor is not None and not 0 < factor <= MAX_RATE:
        raise ConfigError(f"--factor must be a number above 0, not {factor:g}")
    history = history_of(args)
    if args.apply:
        require_history(history, "the quota job creates it when it first starts")
    found, brokers = _found(args)
    if found.others:
        inform(f"{found.others} quotas of addresses are no group's, and stay as they are")
    there = _there(history)
    proposals = propose(found.by_scope, brokers, factor or float(brokers), there.quotas)
    if args.apply:
        proposals = _made(history, proposals, there.version, by, args.why)
    print_answer(
        args,
        lambda: json_lines([as_json(one, brokers, there.used, args) for one in proposals]),
        lambda: "\n".join(
            [
                table_text(*import_rows(proposals, brokers, there.used)),
                *closing_lines(proposals, brokers, args),
            ]
        ),
        lambda: import_rows(proposals, brokers, there.used),
    )
    return 0


def brokers_of(args: argparse.Namespace) -> int:
    """The number of brokers that ``--brokers`` says, or else the cluster.

    Raises:
        ConfigError: neither is there, or the number is no such one.
        TransportError: the cluster can't be reached, or refuses.
    """
    if args.brokers is not None:
        if not 1 <= args.brokers <= _MOST_BROKERS:
            raise ConfigError(f"--brokers must be from 1 to {_MOST_BROKERS}, not {args.brokers}")
        return int(args.brokers)
    transport = kafka_of(args)
    if transport is None:
        raise ConfigError("--brokers N is needed: only settings with transport.kind: kafka tell it")
    return _described(transport)[1]


def kafka_of(args: argparse.Namespace) -> KafkaTransport | None:
    """The Kafka cluster in the settings, None if there is none."""
    transport = None if args.conf is None else load_settings(args.conf).transport
    return transport if isinstance(transport, KafkaTransport) else None


def _found(args: argparse.Namespace) -> tuple[ClientQuotas, int]:
    """The quotas, and the number of brokers."""
    if args.file is None:
        transport = kafka_of(args)
        if transport is None:
            raise ConfigError(
                "groups import kafka needs settings with transport.kind: kafka, or --file FILE"
            )
        entries, brokers = _described(transport)
        return gather(entries), brokers if args.brokers is None else brokers_of(args)
    brokers = brokers_of(args)
    return gather(quota for file in args.file for quota in _read(file)), brokers


def _read(file: str) -> Iterator[FoundQuota]:
    text, source = read_text(file, _MOST_BYTES), source_name(file)
    read = read_described if is_described(text) else read_kafka_users
    quotas = list(read(text, source))
    if not quotas:
        raise InputError(
            f"{source}: has no quotas: it must be what kafka-configs.sh --describe prints, or "
            "KafkaUser resources as YAML"
        )
    return iter(quotas)


def _described(transport: KafkaTransport) -> tuple[list[FoundQuota], int]:
    from quotaplane.transport.kafka_quotas import describe_quotas  # needs kafka-python

    described = describe_quotas(transport)
    where = f"Kafka at {transport.bootstrap_servers}"
    return [FoundQuota(*entry, where) for entry in described.entries], described.brokers


def _there(history: History) -> _There:
    if not has_table(history, RESOURCE_GROUPS.name):
        return _There({}, {}, None)
    rows, version = read_groups(history)
    columns = [rows[column].to_numpy(zero_copy_only=False) for column in RATE_COLUMNS]
    quotas = np.nan_to_num(np.column_stack(columns).astype(np.float64), nan=np.inf)
    names = rows["group"].to_pylist()
    return _There(dict(zip(names, quotas, strict=True)), _used(history), version)


def _used(history: History) -> dict[str, FloatArray]:
    """Usage of each group now, as far as brokers report it."""
    with DuckDBEngine(history) as engine:
        leases = standing_leases(engine, datetime.now(timezone.utc))
    used = np.full((len(leases.names), len(DIMENSIONS)), np.nan)
    for place in range(len(DIMENSIONS)):
        rates = leases.rates(place)[0]
        known = leases.by_group(~np.isnan(rates)) > 0
        used[known, place] = leases.by_group(np.nan_to_num(rates))[known]
    return dict(zip(leases.names.tolist(), used, strict=True))


def _made(
    history: History, proposals: list[EntityProposal], version: int | None, by: str, why: str | None
) -> list[EntityProposal]:
    """Make the proposed groups, all of them or none."""
    chosen = [one for one in proposals if one.state is EntityState.PROPOSED]
    if chosen:
        given = GivenGroups(
            [str(one.group) for one in chosen], np.array([one.quotas for one in chosen]), None, None
        )
        change_groups(
            history, given, by, why=why, at_version=version, ready=require_history, warn=warn
        )
    return [
        one.becomes(EntityState.MADE) if one.state is EntityState.PROPOSED else one
        for one in proposals
    ]
