# ruff: noqa: N815 (the names are Pulsar's)
"""Pulsar's load balancing settings: its own names, with the defaults of 4.0.8."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from quotaplane.errors import InputError
from quotaplane.parsing.decimals import parse_decimal

SHEDDERS: Final = "all shedders"
MODULAR: Final = "modular manager"
EXTENSIBLE: Final = "extensible manager"
BOTH: Final = "both managers"
SIMPLE: Final = "SimpleLoadManagerImpl only"

_IMPL: Final = "org.apache.pulsar.broker.loadbalance.impl."
_CHANNEL: Final = "org.apache.pulsar.broker.loadbalance.extensions.channel."
_ALGORITHMS: Final = (
    *("range_equally_divide", "topic_count_equally_divide"),
    *("specified_positions_divide", "flow_or_qps_equally_divide"),
)


def _of(default: Any, used_by: str, *, java: str = "", replaced: bool = False) -> Any:
    """A setting; ``java`` is its type in Pulsar where the default does not show it. ``replaced``:
    brokers do it, or the balance job has a setting of its own for it.
    """
    guess = {bool: "boolean", int: "int", float: "double", str: "String", tuple: "List<String>"}
    metadata = {"java": java or guess[type(default)], "used_by": used_by, "replaced": replaced}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class StockSettings:
    """Every setting, one line each: name, default, which part of Pulsar reads it.

    >>> StockSettings().loadBalancerBrokerOverloadedThresholdPercentage
    85
    """

    loadBalancerEnabled: bool = _of(True, BOTH)
    loadManagerClassName: str = _of(_IMPL + "ModularLoadManagerImpl", BOTH)
    loadBalancerPlacementStrategy: str = _of("leastLoadedServer", SIMPLE, replaced=True)
    loadBalancerDebugModeEnabled: bool = _of(False, EXTENSIBLE)
    statsUpdateFrequencyInSecs: int = _of(60, BOTH, replaced=True)
    defaultNumberOfNamespaceBundles: int = _of(4, BOTH, replaced=True)
    topicBundleAssignmentStrategy: str = _of(
        "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner", BOTH, replaced=True
    )
    # load reports
    loadBalancerReportUpdateThresholdPercentage: int = _of(10, "report rule", replaced=True)
    loadBalancerReportUpdateMinIntervalMillis: int = _of(5000, "report rule", replaced=True)
    loadBalancerReportUpdateMaxIntervalMinutes: int = _of(15, "report rule", replaced=True)
    loadBalancerHostUsageCheckIntervalMinutes: int = _of(1, BOTH, replaced=True)
    loadBalancerResourceQuotaUpdateIntervalMinutes: int = _of(15, MODULAR, replaced=True)
    loadBalancerMaxNumberOfBundlesInBundleLoadReport: int = _of(10, "load reports")
    loadBalancerOverrideBrokerNicSpeedGbps: float | None = _of(
        None, "load reports", java="Optional<Double>", replaced=True
    )
    # shedding
    loadBalancerSheddingEnabled: bool = _of(True, BOTH)
    loadBalancerLoadSheddingStrategy: str = _of(_IMPL + "ThresholdShedder", BOTH)
    loadBalancerSheddingIntervalMinutes: int = _of(1, BOTH, replaced=True)
    loadBalancerSheddingGracePeriodMinutes: int = _of(30, SHEDDERS, java="long")
    loadBalancerCPUResourceWeight: float = _of(1.0, SHEDDERS)
    loadBalancerMemoryResourceWeight: float = _of(0.0, EXTENSIBLE)
    loadBalancerDirectMemoryResourceWeight: float = _of(0.0, SHEDDERS)
    loadBalancerBandwidthInResourceWeight: float = _of(1.0, SHEDDERS)
    loadBalancerBandwidthOutResourceWeight: float = _of(1.0, SHEDDERS)
    loadBalancerBandwithInResourceWeight: float = _of(1.0, "deprecated spelling")
    loadBalancerBandwithOutResourceWeight: float = _of(1.0, "deprecated spelling")
    loadBalancerBrokerOverloadedThresholdPercentage: int = _of(
        85, "OverloadShedder, TransferShedder, placements"
    )
    loadBalancerBrokerThresholdShedderPercentage: int = _of(10, "ThresholdShedder")
    lowerBoundarySheddingEnabled: bool = _of(False, "ThresholdShedder")
    loadBalancerHistoryResourcePercentage: float = _of(
        0.9, "ThresholdShedder, TransferShedder, LeastResourceUsageWithWeight"
    )
    loadBalancerBundleUnloadMinThroughputThreshold: float = _of(10.0, "ThresholdShedder")
    loadBalancerMsgRateDifferenceShedderThreshold: float = _of(50.0, "UniformLoadShedder")
    loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold: float = _of(
        4.0, "UniformLoadShedder"
    )
    maxUnloadBundleNumPerShedding: int = _of(-1, "UniformLoadShedder")
    minUnloadMessage: int = _of(1000, "UniformLoadShedder, AvgShedder")
    minUnloadMessageThroughput: int = _of(1048576, "UniformLoadShedder, AvgShedder")
    maxUnloadPercentage: float = _of(0.2, "UniformLoadShedder, AvgShedder")
    loadBalancerAvgShedderLowThreshold: int = _of(15, "AvgShedder")
    loadBalancerAvgShedderHighThreshold: int = _of(40, "AvgShedder")
    loadBalancerAvgShedderHitCountLowThreshold: int = _of(8, "AvgShedder")
    loadBalancerAvgShedderHitCountHighThreshold: int = _of(2, "AvgShedder")
    loadBalancerBrokerLoadTargetStd: float = _of(0.25, "TransferShedder")
    loadBalancerSheddingConditionHitCountThreshold: int = _of(3, "TransferShedder")
    loadBalancerTransferEnabled: bool = _of(True, "TransferShedder")
    loadBalancerMaxNumberOfBrokerSheddingPerCycle: int = _of(3, "TransferShedder")
    loadBalanceSheddingDelayInSeconds: int = _of(180, "TransferShedder", java="long")
    loadBalancerBrokerLoadDataTTLInSeconds: int = _of(1800, "TransferShedder", java="long")
    loadBalancerSheddingBundlesWithPoliciesEnabled: bool = _of(False, "TransferShedder")
    loadBalancerBrokerUnderloadedThresholdPercentage: int = _of(50, SIMPLE, replaced=True)
    loadBalancerBrokerComfortLoadLevelPercentage: int = _of(65, SIMPLE, replaced=True)
    # placement
    loadBalancerLoadPlacementStrategy: str = _of(_IMPL + "LeastLongTermMessageRate", MODULAR)
    loadBalancerAverageResourceUsageDifferenceThresholdPercentage: int = _of(
        10, "LeastResourceUsageWithWeight"
    )
    loadBalancerDistributeBundlesEvenlyEnabled: bool = _of(True, "filters of placement")
    loadBalancerBrokerMaxTopics: int = _of(50000, "filters of placement")
    preferLaterVersions: bool = _of(False, "filters of placement")
    failureDomainsEnabled: bool = _of(False, "filters of placement")
    # splits
    loadBalancerAutoBundleSplitEnabled: bool = _of(True, BOTH)
    loadBalancerAutoUnloadSplitBundlesEnabled: bool = _of(True, BOTH, replaced=True)
    loadBalancerNamespaceBundleMaxTopics: int = _of(1000, "splits")
    loadBalancerNamespaceBundleMaxSessions: int = _of(1000, "splits")
    loadBalancerNamespaceBundleMaxMsgRate: int = _of(30000, "splits")
    loadBalancerNamespaceBundleMaxBandwidthMbytes: int = _of(100, "splits")
    loadBalancerNamespaceMaximumBundles: int = _of(128, "splits")
    supportedNamespaceBundleSplitAlgorithms: tuple[str, ...] = _of(
        _ALGORITHMS, "splits", replaced=True
    )
    defaultNamespaceBundleSplitAlgorithm: str = _of("range_equally_divide", "splits")
    flowOrQpsDifferenceThresholdPercentage: int = _of(10, "splits")
    loadBalancerSplitIntervalMinutes: int = _of(1, EXTENSIBLE, replaced=True)
    loadBalancerMaxNumberOfBundlesToSplitPerCycle: int = _of(10, EXTENSIBLE)
    loadBalancerNamespaceBundleSplitConditionHitCountThreshold: int = _of(3, EXTENSIBLE)
    # unloading, and the extensible manager's record of owners
    namespaceBundleUnloadingTimeoutMs: int = _of(60000, BOTH, java="long", replaced=True)
    loadBalancerMultiPhaseBundleUnload: bool = _of(True, EXTENSIBLE, replaced=True)
    loadBalancerInFlightServiceUnitStateWaitingTimeInMillis: int = _of(
        30000, EXTENSIBLE, java="long", replaced=True
    )
    loadBalancerServiceUnitStateMonitorIntervalInSeconds: int = _of(
        60, EXTENSIBLE, java="long", replaced=True
    )
    loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds: int = _of(
        3600, EXTENSIBLE, java="long", replaced=True
    )
    loadBalancerServiceUnitStateMaxConcurrentOverrides: int = _of(64, EXTENSIBLE, replaced=True)
    loadManagerServiceUnitStateTableViewClassName: str = _of(
        _CHANNEL + "ServiceUnitStateTableViewImpl", EXTENSIBLE, replaced=True
    )
    loadBalancerServiceUnitTableViewSyncer: str = _of(
        "None", EXTENSIBLE, java="ServiceUnitTableViewSyncerType", replaced=True
    )

    @property
    def bandwidth_in_weight(self) -> float:
        """The weight that holds: the current spelling unless it is 1, else the deprecated one.

        >>> StockSettings(loadBalancerBandwithInResourceWeight=0.5).bandwidth_in_weight
        0.5
        """
        weight = self.loadBalancerBandwidthInResourceWeight
        return weight if weight != 1.0 else self.loadBalancerBandwithInResourceWeight

    @property
    def bandwidth_out_weight(self) -> float:
        """As ``bandwidth_in_weight``."""
        weight = self.loadBalancerBandwidthOutResourceWeight
        return weight if weight != 1.0 else self.loadBalancerBandwithOutResourceWeight


DECLARED: Final = {setting.name: setting for setting in fields(StockSettings)}
REPLACED: Final = frozenset(name for name in DECLARED if DECLARED[name].metadata["replaced"])
"""Settings that no strategy reads here."""

_WHOLE: Final = {"int": 2**31, "long": 2**63}
_DIGITS: Final = re.compile("[-+]?[0-9]+")
_WANTED: Final = {
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "double": "a finite number",
    "Optional<Double>": "a finite number, or null",
    "List<String>": "a list of texts",
}


def stock_settings(conf: Mapping[str, object]) -> StockSettings:
    """Settings from a case's ``conf``; what is not in it has Pulsar's default.

    Raises:
        InputError: a name that the balancer of Pulsar 4.0.8 does not have (says one like it), or a
            value that is not of the setting's type.

    >>> stock_settings({"maxUnloadPercentage": 0.5}).maxUnloadPercentage
    0.5
    >>> stock_settings({"maxUnloadPercent": 0.5})
    Traceback (most recent call last):
    quotaplane.errors.InputError: conf: Pulsar's load balancer has no setting 'maxUnloadPercent'; \
do you mean maxUnloadPercentage?
    """
    return StockSettings(**{name: _checked(name, value) for name, value in conf.items()})


def stock_setting_of_text(name: str, text: str) -> object:
    """The value of a setting as broker.conf or a command line writes it.

    Raises:
        InputError: as ``stock_settings``.

    >>> stock_setting_of_text("loadBalancerSheddingEnabled", "false")
    False
    """
    java = java_type(_declaration(name))
    text = text.strip()
    value: Any = text
    if java == "boolean":
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif java == "List<String>":
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif java == "Optional<Double>" and not text:
        value = None
    elif java in _WANTED:
        number = parse_decimal(text)
        if math.isfinite(number):
            value = int(text) if java in _WHOLE and _DIGITS.fullmatch(text) else number
    return _checked(name, value)


def java_type(setting: Field[Any]) -> str:
    """The setting's type in Pulsar's source."""
    return str(setting.metadata["java"])


def settings_table() -> str:
    """The table of docs/explain/balance-stock.md: every setting, its default and reader."""
    rows = ["| setting | default | read by |", "|---|---|---|"]
    for setting in DECLARED.values():
        assert setting.default is not MISSING
        rows.append(
            f"| `{setting.name}` | {_shown(setting.default)} | {setting.metadata['used_by']} |"
        )
    return "\n".join(rows)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    if value is None:
        return "(empty)"
    if isinstance(value, str):
        return value.rsplit(".", 1)[-1]
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _declaration(name: str) -> Field[Any]:
    if name not in DECLARED:
        near = get_close_matches(name, DECLARED, 1)
        meant = f"do you mean {near[0]}?" if near else "docs/explain/balance-stock.md lists them"
        raise InputError(f"conf: Pulsar's load balancer has no setting {name[:200]!r}; {meant}")
    return DECLARED[name]


def _checked(name: str, value: Any) -> Any:
    java = java_type(_declaration(name))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if java == "boolean":
        fits = isinstance(value, bool)
    elif java in _WHOLE:
        limit = _WHOLE[java]
        fits = number and isinstance(value, int) and -limit <= value < limit
    elif java in ("double", "Optional<Double>"):
        fits = (number and _is_finite(value)) or (value is None and java != "double")
        value = float(value) if fits and value is not None else value
    elif java == "List<String>":
        fits = isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)
        value = tuple(value) if fits else value
    else:
        fits = isinstance(value, str)
    if not fits:
        raise InputError(f"conf: {name} is {value!r}; expected {_WANTED.get(java, 'a text')}")
    return value


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
