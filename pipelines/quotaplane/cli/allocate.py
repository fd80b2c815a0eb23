"""``quotaplane allocate CASE.json [--law L]``: divides one quota once, and prints the reasons."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from quotaplane.console.answers import add_answer_options, print_answer
from quotaplane.errors import ConfigError, InputError
from quotaplane.laws import DEFAULT_LAW, LAWS, Law, Problem, explain, get_law
from quotaplane.parsing.strict_json import CaseModel, Priority, Rate, Weight, load_case, source_name
from quotaplane.quota.estimate.demand import observe
from quotaplane.quota.headroom import without_history


class BrokerCase(CaseModel):
    """One broker of a case; rates per second."""

    usage: Rate | None = None
    """Measured usage; absent = min(demand, limit)."""
    limit: Rate | None = None
    """Limit in force while the usage was measured; absent = never limited."""
    demand: Rate | None = None
    """Exact demand; absent = estimated from usage and limit."""
    weight: Weight = 1.0
    floor: Rate = 0.0
    ceiling: Rate | None = None
    """Absent = none."""
    priority: Priority = 0


class AllocationCase(CaseModel):
    """One group in one dimension."""

    quota: Rate | None = None
    """Absent = unlimited."""
    brokers: dict[str, BrokerCase]
    law: str = DEFAULT_LAW
    options: dict[str, Any] = Field(default_factory=dict)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane allocate``."""
    parser.add_argument("case", metavar="CASE.json", help="the case to divide; - reads stdin")
    parser.add_argument(
        "--law",
        metavar="LAW",
        help=f"use this law instead of the case's: {', '.join(LAWS)}; "
        "options in the case that are for another law are then ignored",
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the limits and their reasons.

    Raises:
        InputError: the case is wrong.
        ConfigError: ``--law`` is.
    """
    case = load_case(args.case, AllocationCase)
    answer = allocate(case, args.law, source=source_name(args.case))
    print_answer(
        args,
        lambda: json.dumps(answer, indent=2, allow_nan=False),
        lambda: (
            ("broker", "limit", "reason"),
            [(name, limit, answer["reasons"][name]) for name, limit in answer["limits"].items()],
        ),
    )
    return 0


def allocate(case: AllocationCase, law: str | None = None, source: str = "case") -> dict[str, Any]:
    """Divide a case's quota as one round of the control loop would.

    Args:
        case: the group.
        law: replaces the case's own law; the case's options then count only if the case names the
            same law, or none.
        source: name of the case in errors.

    Raises:
        InputError: a broker has neither usage nor demand and the law divides by them, or the case's
            law or options are wrong.
        ConfigError: ``law`` is unknown.

    >>> case = AllocationCase(quota=100, brokers={"a": {"usage": 10}, "b": {"demand": 300}})
    >>> {broker: round(limit, 3) for broker, limit in allocate(case)["limits"].items()}
    {'a': 10.2, 'b': 89.8}
    """
    name, chosen = _law(case, law, source)
    problem = _problem(case, source, needs_usage=LAWS[name].uses_usage)
    allocation = chosen(problem)
    return {
        "law": name,
        "limits": {
            broker: float(limit) if np.isfinite(limit) else None
            for broker, limit in zip(case.brokers, allocation.limits, strict=True)
        },
        "reasons": dict(zip(case.brokers, explain(problem, allocation), strict=True)),
    }


def _law(case: AllocationCase, law: str | None, source: str) -> tuple[str, Law]:
    if law is not None and law not in LAWS:
        raise ConfigError(f"--law: unknown law {law!r} (there are: {', '.join(LAWS)})")
    name = law or case.law
    options_apply = name == case.law or "law" not in case.model_fields_set
    try:
        return name, get_law(name, case.options if options_apply else {})
    except ConfigError as error:
        raise InputError(f"{source}: {error}") from None


def _problem(case: AllocationCase, source: str, *, needs_usage: bool) -> Problem:
    for broker, given in case.brokers.items():
        if needs_usage and given.usage is None and given.demand is None:
            raise InputError(f"{source}: brokers.{broker}.usage: is required (or give its demand)")
    brokers = list(case.brokers.values())

    def column(values: list[float | None], absent: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([absent if value is None else value for value in values], dtype=np.float64)

    starts = np.array([0, len(brokers)])
    quota = column([case.quota], np.inf)
    limit = column([broker.limit for broker in brokers], np.inf)
    weight = column([broker.weight for broker in brokers], 1.0)
    exact = column([broker.demand for broker in brokers], np.nan if needs_usage else 0.0)
    usage = column([broker.usage for broker in brokers], np.nan)
    usage = np.where(np.isnan(usage), np.minimum(exact, limit), usage)
    problem = Problem(
        starts=starts,
        quota=quota,
        usage=usage,
        limit=limit,
        demand=np.where(np.isnan(exact), observe(usage, limit), exact),
        weight=weight,
        floor=column([broker.floor for broker in brokers], 0.0),
        ceiling=column([broker.ceiling for broker in brokers], np.inf),
        priority=np.array([broker.priority for broker in brokers], dtype=np.int64),
    )
    estimated = without_history(problem, np.zeros(len(brokers), dtype=bool)).demand
    return replace(problem, demand=np.where(np.isnan(exact), estimated, exact))
