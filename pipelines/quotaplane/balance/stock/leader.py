"""The leader around a strategy: reads cases, keeps averages, gives a strategy its rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from quotaplane.balance.cluster_load import RATES, RESOURCES, ClusterLoad
from quotaplane.balance.decisions import Decisions
from quotaplane.balance.stock.averages import BundleAverages
from quotaplane.balance.stock.interface import ForgetsBrokers, Shedder, StockRound
from quotaplane.balance.stock.settings import StockSettings, stock_settings
from quotaplane.errors import InputError
from quotaplane.model import BoolArray


class Case(NamedTuple):
    """Some rounds of a cluster, which one instance of a strategy gets."""

    settings: StockSettings
    rounds: Sequence[ClusterLoad]
    recent: frozenset[str]
    """Bundles that count as recently unloaded in every round."""


class Leader:
    """Makes rounds for a strategy: one sample of every bundle a round, and the grace period."""

    def __init__(self, settings: StockSettings, recent: Iterable[str] = ()) -> None:
        """
        Args:
            settings: has the grace period.
            recent: bundles that count as recently unloaded for ever.
        """
        self._averages = BundleAverages()
        self._recent = frozenset(recent)
        self._unloaded: dict[str, float] = {}
        self._grace_s = settings.loadBalancerSheddingGracePeriodMinutes * 60.0

    def round(self, load: ClusterLoad, now_s: float) -> StockRound:
        """The strategy's view of this load. Each call adds a sample to the averages.

        Raises:
            InputError: the load has an unusable value.
        """
        load.check()
        limit = now_s - self._grace_s
        self._unloaded = {name: at for name, at in self._unloaded.items() if at >= limit}
        averages = self._averages.update(load)
        return StockRound(
            load,
            averages.short_term,
            averages.long_term,
            self._mask(load.bundles),
            now_s,
            averages.samples,
        )

    def note_unloaded(self, bundles: Iterable[str], now_s: float) -> None:
        """These bundles were unloaded now; the grace period begins."""
        self._unloaded.update(dict.fromkeys(bundles, now_s))

    def _mask(self, bundles: Sequence[str]) -> BoolArray:
        names = self._recent | self._unloaded.keys()
        if not names:
            return np.zeros(len(bundles), np.bool_)
        return np.fromiter((name in names for name in bundles), np.bool_, len(bundles))


def decide_rounds(
    case: Case, shedder: Shedder, round_s: float = 60.0
) -> Iterator[tuple[StockRound, Decisions]]:
    """Feed a case's rounds to an instance; the rounds are ``round_s`` seconds apart.

    The strategy is called even for a single broker; Pulsar's leader does not call it then.
    """
    leader = Leader(case.settings, case.recent)
    for number, load in enumerate(case.rounds):
        round_ = leader.round(load, number * round_s)
        if isinstance(shedder, ForgetsBrokers):
            shedder.active_brokers(load.brokers)
        yield round_, shedder.shed(round_)


def parse_case(case: object) -> Case:
    """Read a case: ``{"conf": {...}, "rounds": [{broker: {...}}], "recent": [bundle]}``.

    Other keys are left to the caller. A resource that is missing is not known: usage and limit 0.

    Raises:
        InputError: says which round, broker, bundle or field is wrong.

    >>> case = parse_case({"rounds": [{"b1": {"cpu": [50, 100], "bundles": {}}}]})
    >>> case.rounds[0].usage[0, 0].item()
    50.0
    """
    fields = _mapping(case, "case")
    settings = stock_settings(_mapping(fields.get("conf", {}), "conf"))
    rounds = fields.get("rounds")
    if not isinstance(rounds, list):
        raise InputError("rounds: expected a list of objects, one for each round")
    recent = fields.get("recent", [])
    if not isinstance(recent, list) or not all(isinstance(name, str) for name in recent):
        raise InputError("recent: expected a list of bundles")
    loads = []
    for number, brokers in enumerate(rounds):
        try:
            loads.append(parse_round(_mapping(brokers, "round")))
        except InputError as error:
            raise InputError(f"round {number}: {error}") from None
    return Case(settings, loads, frozenset(recent))


def parse_round(brokers: Mapping[str, object]) -> ClusterLoad:
    """Read the load of one round: ``{broker: {"cpu": [usage, limit], ..., "bundles": {...}}}``.

    Raises:
        InputError: as ``parse_case``.
    """
    machines: list[list[list[float]]] = []
    bundles: dict[str, int] = {}
    rates: list[list[float]] = []
    names = tuple(brokers)
    for number, name in enumerate(names):
        broker = _mapping(brokers[name], f"broker {name}")
        unknown = broker.keys() - {*RESOURCES, "bundles"}
        if unknown:
            raise InputError(
                f"broker {name}: has no field {min(unknown)!r};"
                f" expected {', '.join(RESOURCES)}, bundles"
            )
        machines.append([_numbers(broker.get(key, [0, 0]), 2, _at(name, key)) for key in RESOURCES])
        for bundle, measured in _mapping(
            broker.get("bundles", {}), f"broker {name}: bundles"
        ).items():
            if bundle in bundles:
                other = names[bundles[bundle]]
                raise InputError(f"bundle {bundle}: is reported by {other} and by {name}")
            bundles[bundle] = number
            rates.append(_numbers(measured, len(RATES), _at(name, bundle)))
    of_machines = np.array(machines, np.float64).reshape(len(names), len(RESOURCES), 2)
    load = ClusterLoad(
        names,
        of_machines[:, :, 0],
        of_machines[:, :, 1],
        tuple(bundles),
        np.fromiter(bundles.values(), np.int64, len(bundles)),
        np.array(rates, np.float64).reshape(len(rates), len(RATES)),
    )
    load.check()
    return load


def _at(broker: str, field: str) -> Callable[[], str]:
    return lambda: f"broker {broker}: {field}"


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where}: expected an object")
    return value


def _numbers(value: object, count: int, where: Callable[[], str]) -> list[float]:
    if (
        not isinstance(value, (list, tuple))
        or len(value) != count
        or not all(type(part) in (int, float) for part in value)
    ):
        raise InputError(f"{where()}: is {str(value)[:200]}; expected {count} numbers")
    try:
        return [float(part) for part in value]
    except OverflowError:
        raise InputError(f"{where()}: a number is too large") from None
