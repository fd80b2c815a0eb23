"""Cases for placements on the command line, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from quotabalance.planning.cases import Count, RoundCase, check_bundle, loads_of
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.policies import Policies
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.extensible_placement import ExtensiblePlacement
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader import Leader, case_settings
from quotabalance.stock.leader_placement import Draw, LeaderPlacement
from quotabalance.stock.placements import AvgPlacement, new_placement
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import InputError
from quotaplane.parsing.strict_json import CaseModel, parse_case

_EXTENSIBLE = "ExtensibleLoadManagerImpl"

Answer = dict[str, list[str]]


class PlaceCase(CaseModel):
    """Rounds of a cluster, and bundles that are placed after each of them."""

    conf: dict[str, Any] = Field(default_factory=dict)
    """Pulsar's settings."""
    cls: str = ""
    """The strategy's class; "" = that of the settings."""
    rounds: list[RoundCase]
    """As for shedders: brokers with their resources and bundles."""
    place: list[str] = Field(default_factory=list)
    """Bundles, reported or new, in the order in which they are asked for."""
    topics: dict[str, Count] = Field(default_factory=dict)
    """Topics of reported bundles; of the others it is 0."""
    recent: list[str] = Field(default_factory=list)
    """Bundles that were shed shortly before; these are placed if ``place`` is empty."""
    policies: Policies = Field(default_factory=Policies)
    lookup: bool = False
    """Bundles are looked up: each counts for the next ones. Else they are shed, and none does."""
    draws: dict[str, str] = Field(default_factory=dict)
    """For bundles: the broker that Pulsar drew, if it could. Else the first by name counts as drawn
    for histories, plans and lookups."""


def answer_places(case: object, source: str = "case") -> list[Answer]:
    """Which brokers can be chosen for each bundle in each round.

    Args:
        case: parsed JSON, as ``PlaceCase``.
        source: names the case in errors.

    Returns:
        For each round, bundle -> brokers, sorted; [] = none may have it.

    Raises:
        InputError: the case is not usable; says which field.

    >>> broker = {"cpu": [10, 100], "bundles": {"acme/orders/0x00000000_0x80000000": [1, 1, 9, 9]}}
    >>> rounds = [{"b1:8080": broker, "b2:8080": {"cpu": [10, 100], "bundles": {}}}]
    >>> answer_places({"rounds": rounds, "place": ["acme/new/0x00000000_0xffffffff"]})
    [{'acme/new/0x00000000_0xffffffff': ['b2:8080']}]
    """
    parsed = parse_case(case, PlaceCase, source)
    parsed = parsed.model_copy(update={"place": parsed.place or parsed.recent})
    for bundle in parsed.place:
        check_bundle(bundle, f"{source}: place")
    settings = case_settings(parsed.conf, source)
    name = (parsed.cls or settings.loadBalancerLoadPlacementStrategy).rpartition(".")[2]
    loads = loads_of(parsed.rounds, source, parsed.topics)
    if settings.loadManagerClassName.endswith(_EXTENSIBLE):
        return _extensible(parsed, name, settings, loads)
    return _modular(parsed, name, settings, loads)


def _modular(
    case: PlaceCase, name: str, settings: StockSettings, loads: list[ClusterLoad]
) -> list[Answer]:
    shedder = AvgShedder(settings) if name == "AvgShedder" else None
    strategy = AvgPlacement(settings, shedder.targets) if shedder else new_placement(name, settings)
    placement = LeaderPlacement(strategy, settings, case.policies)
    leader = Leader(settings)
    answers = []
    for number, load in enumerate(loads):
        round_ = leader.round(load, 60.0 * number)
        if shedder:  # its plan is what its placement follows
            shedder.shed(round_)
        placement.begin(round_)
        answer: Answer = {}
        for bundle in case.place:
            answer[bundle] = placement.choices(bundle)
            placement.place(bundle, _draw(case.draws.get(bundle)), remember=case.lookup)
        answers.append(answer)
    return answers


def _draw(wanted: str | None) -> Draw:
    def draw(brokers: Sequence[str]) -> str:
        return wanted if wanted is not None and wanted in brokers else min(brokers)

    return draw


def _extensible(
    case: PlaceCase, name: str, settings: StockSettings, loads: list[ClusterLoad]
) -> list[Answer]:
    # the manager has only this strategy, and does not read the setting
    if (case.cls or name) not in ("", "LeastResourceUsageWithWeight", "LeastLongTermMessageRate"):
        raise InputError(f"the extensible manager has no placement {name[:200]!r}")
    placement, answers = ExtensiblePlacement(settings, case.policies), []
    for load in loads:
        nothing = np.zeros(len(load.bundles), np.bool_)
        placement.begin(StockRound(load, load.rates, load.rates, nothing, 0.0))
        answers.append({bundle: placement.choices(bundle) for bundle in case.place})
    return answers
