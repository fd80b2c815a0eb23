"""The strategy that settings and a ``broker.conf`` choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from quotabalance.planning.decisions import OURS
from quotabalance.planning.options import PULSARS_NAMES, read_options, with_our_names
from quotabalance.planning.policies import read_policies
from quotabalance.record.strategies import StrategyInForce
from quotabalance.settings import Balance
from quotabalance.stock.broker_conf import BrokerConf, parse_broker_conf, shedder_of, without_effect
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import ConfigError, InputError

_MOST_BYTES: Final = 10_000_000

Read = TypeVar("Read")


def strategy_in_force(balance: Balance) -> StrategyInForce:
    """The strategy of the settings.

    Limits of bundles in ``broker_conf`` are options of quotaplane's strategy, unless
    ``balance.options`` has them.

    Raises:
        ConfigError: a setting, option, policy or the file is wrong, and which.
    """
    conf = read_broker_conf(balance.broker_conf)
    options = limits_in(conf.given) | with_our_names(balance.options)
    found = StrategyInForce(
        balance.strategy,
        _named("options.", lambda: read_options(options)),
        _named("policies.", lambda: read_policies(balance.policies)),
        conf.settings,
    )
    _named("broker_conf: ", found.run)
    return found


def notices_of(balance: Balance) -> Iterator[str]:
    """Lines for the start: entries of ``broker_conf`` without effect, or with another one."""
    path = balance.broker_conf
    yield from notices(read_broker_conf(path), balance.strategy, path)


def notices(conf: BrokerConf, strategy: str, path: str | None) -> Iterator[str]:
    """Sentences about entries of a file without effect, or with another effect than one thinks."""
    yield from conf.notices
    read = frozenset(PULSARS_NAMES) if strategy == OURS else None
    names = without_effect(conf.given, read)
    if names:
        yield f"{path}: without effect on {strategy} here: {', '.join(sorted(names))}"


def read_broker_conf(path: str | None) -> BrokerConf:
    """Read a file; without one all is as Pulsar's defaults.

    Raises:
        ConfigError: it can't be read, or Pulsar could not start with it.
    """
    if path is None:
        return BrokerConf(StockSettings(), {}, ())
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: has more than {_MOST_BYTES:,} bytes")
    try:
        return parse_broker_conf(data, path)
    except InputError as error:
        raise ConfigError(str(error)) from None


def alternative_to_ours(
    path: str | None, strategy: str | None
) -> tuple[str, BrokerConf, list[str]]:
    """Options of a command: the strategy, a file's settings, and lines that say what is odd in it.

    Without a strategy it is that of brokers with the file, or quotaplane's if there is none.

    Raises:
        ConfigError: the file is wrong, or brokers with it would not start.
    """
    conf = read_broker_conf(path)
    name, lines = strategy or OURS, list[str]()
    if path and not strategy:
        try:
            name, notice = shedder_of(conf.settings)
        except InputError as error:
            raise ConfigError(f"{path}: {error}") from None
        lines = [f"{path}: {notice}"] if notice else []
    return name, conf, [*lines, *notices(conf, name, path)]


def limits_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file that are options of quotaplane's strategy, by our names.

    >>> limits_in({"loadBalancerNamespaceBundleMaxSessions": -1, "minUnloadMessage": 5})
    {'max_bundle_sessions': 0}
    """
    limits = with_our_names({name: given[name] for name in PULSARS_NAMES if name in given})
    if limits.get("max_bundle_sessions", 0) < 0:  # for Pulsar as 0: any number
        limits["max_bundle_sessions"] = 0
    return limits


def _named(key: str, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except InputError as error:
        raise ConfigError(f"balance.{key}{error}") from None
