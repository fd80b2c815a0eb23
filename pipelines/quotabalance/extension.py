"""Everything that the balancer adds to quotaplane; see ``quotaplane.extensions``."""

from __future__ import annotations

from typing import Final

from quotaplane.extensions import Extension

EXTENSION: Final = Extension(
    commands={
        "balance": ("quotabalance.cli.balance", "decide which bundles leave which broker, and why"),
        "balance bundles": (
            "quotabalance.cli.bundles",
            "list namespaces that have many idle bundles, and what can be done",
        ),
        "balance collect": ("quotabalance.cli.collect", "publish the load of Pulsar's brokers"),
        "balance execute": ("quotabalance.cli.execute", "show or execute the balancer's plans"),
        "balance replay": (
            "quotabalance.cli.replay_rounds",
            "decide the balancer's recorded rounds again, and compare",
        ),
        "balance what-if": (
            "quotabalance.cli.what_if",
            "show what another strategy would have done with the recorded load",
        ),
    },
    purpose="the load balancer",
    long_running=frozenset(("balance collect", "balance execute")),
    settings="quotabalance.settings:BalanceSettings",
    tables="quotabalance.record.tables:TABLES",
    metrics={"balance": "quotabalance.metrics:BALANCE_JOB"},
    conditions="quotabalance.balancer_conditions:CONDITIONS",
    routes="quotabalance.routes:routes",
)
