"""Cases for splits on the command line, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from quotabalance.planning.cases import Count, Rates, RoundCase, check_bundle, loads_of
from quotabalance.planning.decisions import Split
from quotabalance.stock.leader import Leader, case_settings, switched_off
from quotabalance.stock.split_algorithms import (
    TopicRates,
    default_boundaries,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from quotabalance.stock.split_triggers import BundleSplitterTask, ExtensibleSplitter
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import InputError
from quotaplane.parsing.strict_json import CaseModel, parse_case
from quotaplane.topics.bundle_names import FULL_RANGE, BundleName, parse_bundle

ALGORITHMS: Final = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)
TRIGGERS: Final = ("BundleSplitterTask", "DefaultNamespaceBundleSplitStrategyImpl")

Position = Annotated[int, Field(ge=0, le=FULL_RANGE)]

Splits = dict[str, list[int]]


class BoundariesCase(CaseModel):
    """One bundle that is to be split with one of ``ALGORITHMS``."""

    conf: dict[str, Any] = Field(default_factory=dict)
    cls: str = ""
    """The algorithm; "" = that of the settings."""
    bundle: str
    topics: dict[str, Rates] = Field(default_factory=dict)
    """Full names of the bundle's topics, with their rates."""
    positions: list[Position] = Field(default_factory=list)
    """For ``specified_positions_divide``."""


class TriggersCase(CaseModel):
    """Rounds of a cluster, in which one of ``TRIGGERS`` finds bundles to split."""

    conf: dict[str, Any] = Field(default_factory=dict)
    cls: str = ""
    """The class; "" = that of the load manager in the settings."""
    rounds: list[RoundCase]
    """As for shedders: brokers with their resources and bundles."""
    topics: dict[str, Count | dict[str, Rates]] = Field(default_factory=dict)
    """For each bundle how many, or which with their rates (some algorithms need them)."""
    sessions: dict[str, Count] = Field(default_factory=dict)
    """Producers and consumers of bundles."""
    counts: dict[str, Count] = Field(default_factory=dict)
    """Bundles of namespaces; of others those count that are reported."""
    splitting: list[str] = Field(default_factory=list)
    """Bundles that are being split."""


def answer_splits(case: object, source: str = "case") -> list[int] | list[Splits]:
    """Boundaries of one bundle, or the bundles that are split in each round.

    Args:
        case: parsed JSON: with ``rounds`` a ``TriggersCase``, else a ``BoundariesCase``.
        source: names the case in errors.

    Returns:
        Boundaries ([] = the bundle is not split), or for each round bundle -> boundaries. ([] there
        = the algorithm finds none, so that Pulsar's request to split does nothing.)

    Raises:
        InputError: the case is not usable; says which field.

    >>> bundle = "acme/orders/0x00000000_0x80000000"
    >>> answer_splits({"bundle": bundle, "cls": "range_equally_divide"})
    [1073741824]
    """
    if isinstance(case, dict) and "rounds" in case:
        return _triggered(parse_case(case, TriggersCase, source), source)
    return _boundaries(parse_case(case, BoundariesCase, source), source)


def _rates(topics: Mapping[str, list[float]]) -> dict[str, TopicRates]:
    return {name: TopicRates(row[0] + row[1], row[2] + row[3]) for name, row in topics.items()}


def _boundaries(case: BoundariesCase, source: str) -> list[int]:
    settings = case_settings(case.conf, source)
    bundle = check_bundle(case.bundle, f"{source}: bundle")
    name = case.cls or settings.defaultNamespaceBundleSplitAlgorithm
    if name == "range_equally_divide":
        found = range_equally_divide(bundle)
    elif name == "topic_count_equally_divide":
        found = topic_count_equally_divide(case.topics)
    elif name == "specified_positions_divide":
        found = specified_positions_divide(bundle, len(case.topics), case.positions)
    elif name == "flow_or_qps_equally_divide":
        found = flow_or_qps_equally_divide(_rates(case.topics), settings)
    elif name.rpartition(".")[2] in TRIGGERS:
        raise InputError(
            f"{source}: {name[:200]} looks for bundles in rounds, so the case needs rounds and no "
            "bundle"
        )
    else:
        known = ", ".join(ALGORITHMS)
        raise InputError(f"Pulsar has no split algorithm {name[:200]!r}; expected one of {known}")
    return list(found)


def _triggered(case: TriggersCase, source: str) -> list[Splits]:
    settings = case_settings(case.conf, source)
    if switched_off(settings, "loadBalancerAutoBundleSplitEnabled", "nothing is split"):
        return [{} for _ in case.rounds]
    extensible = settings.loadManagerClassName.endswith("ExtensibleLoadManagerImpl")
    name = (case.cls or TRIGGERS[extensible]).rpartition(".")[2]
    if name in ALGORITHMS:
        raise InputError(
            f"{source}: {name} divides one bundle, so the case needs a bundle and not rounds"
        )
    if name not in TRIGGERS:
        known = ", ".join(TRIGGERS)
        raise InputError(f"Pulsar has no split trigger {name[:200]!r}; expected one of {known}")
    return (
        _modular(case, settings, source)
        if name == TRIGGERS[0]
        else _extensible(case, settings, source)
    )


def _topics(case: TriggersCase) -> tuple[dict[str, int], dict[str, dict[str, TopicRates]]]:
    """How many topics bundles have, and those that are known with their rates."""
    counts = {bundle: of if isinstance(of, int) else len(of) for bundle, of in case.topics.items()}
    known = {bundle: _rates(of) for bundle, of in case.topics.items() if not isinstance(of, int)}
    return counts, known


def _modular(case: TriggersCase, settings: StockSettings, source: str) -> list[Splits]:
    counts, known = _topics(case)
    task, leader, answers = BundleSplitterTask(settings), Leader(settings), []
    for number, load in enumerate(loads_of(case.rounds, source, counts, case.sessions)):
        found = task.find(leader.round(load, 60.0 * number), case.counts or None)
        answers.append(
            {
                split.bundle: list(
                    default_boundaries(
                        parse_bundle(split.bundle), known.get(split.bundle, {}), settings
                    )
                )
                for split in sorted(found.splits)
            }
        )
    return answers


def _extensible(case: TriggersCase, settings: StockSettings, source: str) -> list[Splits]:
    counts, known = _topics(case)

    def boundaries(name: BundleName) -> tuple[int, ...]:
        return default_boundaries(name, known.get(str(name), {}), settings)

    splitters: dict[str, ExtensibleSplitter] = {}
    answers = []
    for load in loads_of(case.rounds, source, counts, case.sessions):
        splits: list[Split] = []
        for index, broker in enumerate(load.brokers):
            splitter = splitters.setdefault(broker, ExtensibleSplitter(settings, boundaries))
            found = splitter.find(load, index, case.counts or None, case.splitting)
            splits += found.splits
        answers.append({split.bundle: list(split.boundaries) for split in sorted(splits)})
    return answers
