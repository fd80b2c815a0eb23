"""Every tunable of quotaplane's own strategy, with its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError, model_validator

from quotabalance.planning.bundle_limits import BundleLimits
from quotabalance.planning.cluster_load import RESOURCES
from quotaplane.errors import InputError
from quotaplane.parsing.decimals import OneSpelling
from quotaplane.parsing.strict_json import first_error

KEPT_SAMPLES: Final = 4
"""Latest samples that are kept of each bundle."""


class BalanceOptions(OneSpelling):
    """How quotaplane balances. Imbalance is a share: 0.15 = 15 % above the cluster's mean.

    >>> BalanceOptions(start_above=0.2).moves_in_a_round(brokers=10)
    100
    >>> read_options({"start_above": -1})
    Traceback (most recent call last):
    quotaplane.errors.InputError: start_above: Input should be greater than 0
    """

    start_above: float = Field(default=0.15, gt=0, le=10)
    """A broker is overloaded when it carries more than (1 + this) times the mean. Lower values make
    the cluster more even, with more moves."""
    stop_below: float = Field(default=0.13, gt=0, le=10)
    """Bundles leave an overloaded broker until it carries (1 + this) times the mean; no broker
    gets more than that. Set it with ``start_above``, a little lower."""
    confirm_samples: int = Field(default=2, ge=1, le=KEPT_SAMPLES)
    """Number of the latest ``confirm_window_samples`` samples that must be above ``start_above``.
    Samples count for the broker that has the bundle now. 1 for load that is exact, as in tests."""
    confirm_window_samples: int = Field(default=3, ge=1, le=KEPT_SAMPLES)
    """Set it with ``confirm_samples``."""
    noise_z: float = Field(default=3.0, ge=0, le=20)
    """The overload must exceed ``start_above`` by this many standard errors of the estimate. 0 for
    load that is exact, as in tests."""
    sample_period_s: float = Field(default=60.0, gt=0)
    """Equal numbers count as a new sample when they were measured this much later. Set it to the
    interval in which the brokers measure, if that is not a minute."""
    stale_after_s: float = Field(default=1200.0, gt=0)
    """A broker whose numbers are older neither gives nor receives; after three times as long it is
    forgotten. Stock brokers whose load changes
    by less than 10 % report only every 15 minutes; with a collector it may be a few minutes."""

    resources: tuple[str, ...] = ("cpu", "bandwidthIn", "bandwidthOut")
    """The machine's resources to balance, by Pulsar's names; () = only bytes per second. Set it if
    another resource is scarce."""

    max_moves_per_round: int | None = Field(default=None, ge=0)
    """Orders under way count, too. null: 3 for each broker, at least 100. Lower it for a careful
    start."""
    max_bytes_share_per_round: float = Field(default=0.3, gt=0, le=1)
    """Most bytes per second moved in a round, as a part of the cluster's; one move always may.
    Lower it if moves disturb clients."""

    grace_s: float = Field(default=1800.0, ge=0)
    """How long a moved bundle stays, except on a broker that is drained. Raise it if moves disturb
    clients."""

    allow_splits: bool = True
    """false if Pulsar, or an administrator, splits bundles."""
    max_bundle_topics: int = Field(default=1000, ge=1)
    """A bundle with more topics is split. Set this and the next three to Pulsar's own limits."""
    max_bundle_sessions: int = Field(default=1000, ge=0)
    """As above, with more producers and consumers; 0: any number."""
    max_bundle_messages_per_s: float = Field(default=30_000.0, gt=0)
    """As above, with more messages in and out."""
    max_bundle_bytes_per_s: float = Field(default=float(100 * 2**20), gt=0)
    """As above, with more bytes in and out."""
    max_bundles_per_namespace: int = Field(default=128, ge=1)
    """A namespace with this many bundles is not split further. Set it to Pulsar's own limit,
    ``loadBalancerNamespaceMaximumBundles``."""

    @model_validator(mode="after")
    def _fits_together(self) -> BalanceOptions:
        if self.stop_below > self.start_above:
            raise ValueError("stop_below must not exceed start_above")
        if self.confirm_samples > self.confirm_window_samples:
            raise ValueError("confirm_samples must not exceed confirm_window_samples")
        unknown = [name for name in self.resources if name not in RESOURCES]
        if unknown or len(set(self.resources)) != len(self.resources):
            raise ValueError(f"resources: expected some of {', '.join(RESOURCES)}, each once")
        return self

    @property
    def gone_after_s(self) -> float:
        """A broker whose numbers are older no longer counts, and is forgotten."""
        return 3.0 * self.stale_after_s

    @property
    def bundle_limits(self) -> BundleLimits:
        """The most of a bundle."""
        return BundleLimits(
            self.max_bundle_topics,
            self.max_bundle_sessions,
            self.max_bundle_messages_per_s,
            self.max_bundle_bytes_per_s,
        )

    def moves_in_a_round(self, brokers: int) -> int:
        """The most moves in one round of a cluster with this number of brokers."""
        if self.max_moves_per_round is not None:
            return self.max_moves_per_round
        return max(100, 3 * brokers)


PULSARS_NAMES: Final = {
    "loadBalancerNamespaceBundleMaxTopics": "max_bundle_topics",
    "loadBalancerNamespaceBundleMaxSessions": "max_bundle_sessions",
    "loadBalancerNamespaceBundleMaxMsgRate": "max_bundle_messages_per_s",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": "max_bundle_bytes_per_s",
    "loadBalancerNamespaceMaximumBundles": "max_bundles_per_namespace",
}
"""Options that Pulsar has, too, by its names. Its bytes are in MB of 2^20."""


def read_options(values: Any) -> BalanceOptions:
    """Options from a mapping, for example of a settings file.

    Limits of bundles may have Pulsar's names, too.

    Raises:
        InputError: a name is unknown or a value unusable; one line that names it.

    >>> read_options({"loadBalancerNamespaceBundleMaxBandwidthMbytes": 1}).max_bundle_bytes_per_s
    1048576.0
    """
    if isinstance(values, Mapping):
        values = with_our_names(values)
    try:
        return BalanceOptions.model_validate(values)
    except ValidationError as error:
        raise InputError(first_error(error)) from None


def with_our_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by our names only.

    Raises:
        InputError: one is given by both names.
    """
    renamed: dict[str, Any] = {}
    for name, value in values.items():
        ours = PULSARS_NAMES.get(name, name)
        if ours in renamed:
            raise InputError(f"{name}: is given twice, also as {ours}")
        if name.endswith("Mbytes") and isinstance(value, (int, float)):
            value = value * 2**20
        renamed[ours] = value
    return renamed
