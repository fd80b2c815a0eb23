"""``quotaplane groups import pulsar``: proposes quotas from a Pulsar cluster's rates per topic.

``--apply`` makes the groups: first the table gets all of them in one commit, with the author and
the reason; then the cluster gets them one by one. A run that fails in between is continued by the
next one.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.cli.group_edits import author_of
from quotaplane.cli.import_answer import as_json, closing_lines, import_rows
from quotaplane.console.answers import json_lines, print_answer, table_text
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import ClusterError, ConfigError, InputError
from quotaplane.groups.names import name_flaw
from quotaplane.history.store import has_table, require_history
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import BASIC, DIMENSIONS, RATE_COLUMNS, FloatArray
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.quota_proposals import Proposal, State, propose, taken
from quotaplane.pulsar_admin.rate_survey import survey
from quotaplane.pulsar_admin.resource_groups import GROUPS
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.table import change_groups, list_groups
from quotaplane.server.cluster_groups import ClusterGroups, rates_to_set
from quotaplane.settings import History, PulsarTransport, Settings, load_settings


def run(args: argparse.Namespace) -> int:
    """Print the proposals; with ``--apply`` carry them out.

    Raises:
        ConfigError: the settings or options are wrong, or there is no history.
        InputError: no namespace matches.
        ClusterError: the cluster can't be reached, or refused something; the answer has the rest.
        HistoryError: the tables can't be read or written.
    """
    settings, by = load_settings(args.conf), author_of(args)
    transport = settings.transport
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError(
            "groups import pulsar needs transport.kind: pulsar and transport.admin_url"
        )
    if args.apply:
        require_history(settings.history, "the quota job creates it when it first starts")
    proposals = asyncio.run(_import(settings, transport, args, by))
    print_answer(
        args,
        lambda: json_lines([as_json(one, args.conf) for one in proposals]),
        lambda: "\n".join([table_text(*import_rows(proposals)), *closing_lines(proposals, args)]),
        lambda: import_rows(proposals),
    )
    failed = [one for one in proposals if one.state is State.FAILED]
    if failed:
        raise ClusterError(
            f"{len(failed)} of {len(proposals)} namespaces failed, for example "
            f"{failed[0].namespace.name}: {failed[0].notes[-1]}; run the command again to continue"
        )
    return 0


async def _import(
    settings: Settings, transport: PulsarTransport, args: argparse.Namespace, by: str
) -> list[Proposal]:
    async with Rest(
        transport,
        concurrency=settings.enforce.concurrency,
        conditions=Conditions(warn),
    ) as rest:
        found = await survey(
            rest,
            lambda name: fnmatchcase(name, args.namespaces),
            settings.enforce.max_reads_per_s,
            inform,
        )
        if not found.namespaces:
            raise InputError(f"no namespace matches {args.namespaces!r} (--namespaces)")
        names = [namespace.name for namespace in found.namespaces]
        left_out = _left_out(names, settings, transport)
        proposals = propose(found.namespaces, found.broker, left_out, name_flaw)
        proposals = await _with_existing(rest, settings.history, proposals)
        inform(
            f"used_per_s is the average of the last {found.stats_interval_s:g} s, by the brokers"
        )
        if not args.apply:
            return proposals
        return await make_groups(rest, settings.history, proposals, by, args.why)


def _left_out(
    names: Sequence[str], settings: Settings, transport: PulsarTransport
) -> dict[str, str]:
    """The namespaces that must not get a quota of their own, and why."""
    tenants = settings.cluster.tenants if settings.cluster else {}
    left_out = {
        name: f"cluster.tenants attaches it to {tenants[tenant]}"
        for name in names
        if (tenant := name.partition("/")[0]) in tenants
    }
    reports, limits = settings.own_topics
    more = (transport.full_name(topic.name) for topic in settings.named_topics)
    for topic in (*reports, limits, *more):
        left_out["/".join(topic.split("/")[2:4])] = "it has quotaplane's own topics"
    return left_out


async def _with_existing(
    rest: Rest, history: History, proposals: Sequence[Proposal]
) -> list[Proposal]:
    """The proposals; those whose groups exist with other quotas are not made."""
    table: dict[str, FloatArray] = {}
    if has_table(history, RESOURCE_GROUPS.name):
        for row in list_groups(history).to_pylist():
            rates = [row[column] for column in RATE_COLUMNS[:BASIC]]
            table[row["group"]] = np.array([np.inf if r is None else r for r in rates])
    cluster, listed = ClusterGroups(rest, {}), set(await read_names(rest, GROUPS))
    checked = []
    for one in proposals:
        group = one.group
        if one.state is State.PROPOSED and group in table:
            one = taken(one, "in the history", table[group])
        if one.state is State.PROPOSED and group in listed:
            found = await cluster.read(group)
            one = one if found is None else taken(one, "in the cluster", found.rates)
        checked.append(one)
    return checked


async def make_groups(
    rest: Rest, history: History, proposals: Sequence[Proposal], by: str, why: str | None
) -> list[Proposal]:
    """Carry out proposals; returns all of them in their new state.

    Raises:
        InputError, HistoryError: the table was not changed, nor was the cluster.
    """
    chosen = [one for one in proposals if one.state is State.PROPOSED]
    if chosen:
        quotas = np.full((len(chosen), len(DIMENSIONS)), np.nan)
        quotas[:, :BASIC] = [one.quotas for one in chosen]
        names = [str(one.group) for one in chosen]
        given = GivenGroups(names, quotas, None, None)
        change_groups(history, given, by, why=why, ready=require_history, warn=warn)
    cluster = ClusterGroups(rest, {})
    after, gone = [], ""
    for one in proposals:
        if one.state is State.PROPOSED and gone:
            one = one.becomes(State.FAILED, gone)
        elif one.state is State.PROPOSED:
            try:
                one = await _attached(cluster, one)
            except RefusedError as error:
                one = one.becomes(State.FAILED, str(error))
            except ClusterError as error:
                one = one.becomes(State.FAILED, str(error))
                gone = "not begun, as the cluster did not answer"
        after.append(one)
    return after


async def _attached(cluster: ClusterGroups, proposal: Proposal) -> Proposal:
    """Make one group in the cluster, unless it is there already, and attach its namespace."""
    name, group = proposal.namespace.name, str(proposal.group)
    # Another program may have attached it since it was read.
    other = await cluster.group_of(name)
    if other is not None:
        return proposal.becomes(State.ATTACHED, f"meanwhile to {other}")
    if await cluster.read(group) is None:
        unlimited = np.full(BASIC, np.inf)
        rates = rates_to_set(proposal.quotas, unlimited, None)
        await cluster.put(group, rates)
    await cluster.attach(name, group)
    inform(f"{name}: attached to the group {group}")
    return proposal.becomes(State.DONE)
