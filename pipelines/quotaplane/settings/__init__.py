"""Typed settings from one YAML file, checked completely before anything starts.

``${NAME}`` in a value is replaced by an environment variable, so that secrets and hosts need not be
in the file. Unknown keys, wrong types and impossible combinations raise a one-line ``ConfigError``
that names the key.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr, ValidationError, create_model, model_validator

from quotaplane.errors import ConfigError, InputError
from quotaplane.extensions import extensions, load
from quotaplane.model import Transition
from quotaplane.parsing.folders import FolderUri, local_folder
from quotaplane.parsing.strict_json import first_of_all
from quotaplane.parsing.strict_yaml import read_value
from quotaplane.settings.cleartext import Protections as Protections
from quotaplane.settings.cleartext import server_flaws, tracing_flaws, transport_flaws
from quotaplane.settings.pulsar import Cluster as Cluster
from quotaplane.settings.pulsar import Enforce as Enforce
from quotaplane.settings.section import FOREVER, NamedTopic, Section
from quotaplane.settings.server import MetricsPorts as MetricsPorts
from quotaplane.settings.server import Server as Server
from quotaplane.settings.server import Tracing as Tracing
from quotaplane.settings.signing import Signing as Signing
from quotaplane.settings.transports import (
    STOCK_REPORTS,
    TRANSPORT_KINDS,
    brokers_of,
    is_live,
    is_per_broker,
)
from quotaplane.settings.transports import DeltaTransport as DeltaTransport
from quotaplane.settings.transports import KafkaSecurity as KafkaSecurity
from quotaplane.settings.transports import KafkaTransport as KafkaTransport
from quotaplane.settings.transports import PulsarConnection as PulsarConnection
from quotaplane.settings.transports import PulsarSecurity as PulsarSecurity
from quotaplane.settings.transports import PulsarTransport as PulsarTransport
from quotaplane.settings.transports import TransportSettings as TransportSettings
from quotaplane.settings.usage_reports import CLUSTER
from quotaplane.settings.usage_reports import Reports as Reports
from quotaplane.settings.usage_reports import Senders as Senders


class BrokerTimeouts(Section):
    """Timeouts after which a silent broker counts as stale, or no longer counts."""

    stale_after_intervals: float = Field(default=2.0, gt=0)
    """After so many intervals without a report a broker is shown as stale; with ``strict`` its
    limits stay. Raise it if reports are often late."""
    expire_after_intervals: float = Field(default=3.0, gt=0)
    """After so many silent intervals a broker's usage no longer counts; others get its share. Raise
    it if brokers are often silent, as in pauses of a JVM."""

    @model_validator(mode="after")
    def _ordered(self) -> BrokerTimeouts:
        if self.stale_after_intervals > self.expire_after_intervals:
            raise ValueError("stale_after_intervals must not exceed expire_after_intervals")
        return self


class LawChoice(Section):
    """The law that divides the quotas, and its options."""

    name: str = "max_min"
    """Division law: ``max_min``, ``pip82``, ``proportional`` or ``static``. Leave it, unless
    ``quotaplane replay`` shows that another suits your demand."""
    options: dict[str, Any] = Field(default={})
    """Options of the law, by name (docs/explain/laws.md). Set them with ``law.name``; what is left
    out has its default."""


class Limits(Section):
    """The contents and publication of limits."""

    lease_s: float = Field(default=120.0, gt=0, le=4_000_000)
    """Time for which a limit holds unless renewed; reports older than it are not used. Raise it if
    the job may be down for longer; lower it for safe limits sooner."""
    safe_share: float | None = Field(default=None, ge=0, le=1)
    """After its lease end a broker may use this part of the quota, divided by the known brokers.
    null: 1, with ``strict`` 0. Lower it if quotas must hold then."""
    refresh_rounds: int = Field(default=10, ge=1)
    """Rounds within which every limit is published again, changed or not. Leave it; raise it if
    limits messages are too many. A quarter of a lease always holds."""
    max_step: float | None = Field(default=None, gt=0, le=1)
    """Largest change of a limit in a round, as a part of its quota, unless the quota was lowered;
    null: any. Set it, say 0.2, if clients suffer from jumps."""
    over: float = Field(default=0.0, ge=0, le=1)
    """While limits are not used up, their sum may exceed the quota by this part, repaid later
    (docs/explain/laws.md). Raise it if noise throttles; only with ``fast``."""
    transition: Transition = Transition.FAST
    """``strict``: limits in force never exceed the quota; raises wait for decreases
    (docs/explain/laws.md). Set it if quotas are hard bounds; ``fast`` is fairer sooner."""
    signing: Signing | None = None
    """Keys with which the job signs limits; the enforcer then refuses others. null: unsigned. Set
    it where others may write to the limits topic."""

    @model_validator(mode="after")
    def _safe_if_strict(self) -> Limits:
        if self.transition is Transition.STRICT and self.safe_share:
            raise ValueError(
                "safe_share must be 0 with transition: strict: a broker without contact would use "
                "its safe limit while others already have its share"
            )
        return self

    @model_validator(mode="after")
    def _within_quotas_if_strict(self) -> Limits:
        if self.transition is Transition.STRICT and self.over:
            raise ValueError(
                "over must be 0 with transition: strict: limits in force never exceed the quota"
            )
        return self

    @property
    def safe_share_or_default(self) -> float:
        """``safe_share``, or the value that null stands for."""
        if self.safe_share is not None:
            return self.safe_share
        return 0.0 if self.transition is Transition.STRICT else 1.0


class History(Section):
    """Location of the Delta tables."""

    path: FolderUri
    """Folder or object store of the Delta tables, the same for all programs. Always set it."""
    storage_options: dict[str, SecretStr] = Field(default={})
    """Keys, endpoint and region of a store, for Spark and all else (docs/operate/stores.md). Set
    it if the machine has none of its own."""
    recording_days: float = Field(default=1.0, ge=0, le=3650)
    """Days for which inputs are kept for ``quotaplane replay``; 0: none. Raise it to look further
    back; lower it if the disk is small."""
    reserve_mb: float = Field(default=64.0, ge=0, le=1e6)
    """Disk space beside local tables that is freed when the disk is full: half for a job, half for
    commands; 0: none. Leave it, unless the disk is tiny."""


class Trigger(Section):
    interval_s: float = Field(default=1.0, ge=0)
    """Least time between micro-batches. Raise it to some seconds if rounds take long; lower it for
    limits a little sooner."""


class Settings(Section):
    """All settings of the jobs, from ``--conf FILE``."""

    transport: Annotated[TransportSettings, Field(discriminator="kind")]
    history: History
    checkpoint: FolderUri
    """Folder of the streaming checkpoint, on a disk that stays; a new folder starts a new epoch.
    Always set it."""
    shards: int = Field(default=2, ge=1, le=4096)
    """Parts of the state, about one per executor core; fixed in the checkpoint. Raise it, with
    `quotaplane reshard`, if rounds take long."""
    trigger: Trigger = Trigger()
    reports: Reports = Reports()
    brokers: BrokerTimeouts = BrokerTimeouts()
    law: LawChoice = LawChoice()
    limits: Limits = Limits()
    cluster: Cluster | None = None
    enforce: Enforce = Enforce()
    metrics: MetricsPorts = MetricsPorts()
    tracing: Tracing = Tracing()
    security: Protections = Protections()
    server: Server | None = None

    @model_validator(mode="after")
    def _cluster_reachable(self) -> Settings:
        if self.cluster is not None and (
            not isinstance(self.transport, PulsarTransport) or self.transport.admin_url is None
        ):
            raise ValueError("cluster needs transport.kind: pulsar and transport.admin_url")
        return self

    @model_validator(mode="after")
    def _secrets_encrypted(self) -> Settings:
        if self.security.allow_cleartext_secrets:
            return self
        flaws = [f"tracing.{flaw}" for flaw in tracing_flaws(self.tracing)]
        flaws += [f"transport.{flaw}" for flaw in transport_flaws(self.transport)]
        if self.server is not None:
            flaws += [f"server: {flaw}" for flaw in server_flaws(self.server)]
        if flaws:
            raise ValueError(f"{flaws[0]}, or allow it with security.allow_cleartext_secrets: true")
        return self

    @model_validator(mode="after")
    def _brokers_known(self) -> Settings:
        reports, _ = self.own_topics
        if self.reports.broker_from == "topic" and not all(map(is_per_broker, reports)):
            raise ValueError(
                "reports.broker_from: topic needs a report topic per broker: Kafka or Pulsar, and "
                "{broker} in each name in transport.report_topics"
            )
        for key, senders in self.senders.items():
            pulsar = isinstance(self.transport, PulsarTransport) and self.transport.admin_url
            if senders.allowed_brokers == CLUSTER and not pulsar:
                raise ValueError(
                    f"{key}.allowed_brokers: cluster needs transport.kind: pulsar and "
                    "transport.admin_url"
                )
        return self

    @model_validator(mode="after")
    def _topics_apart(self) -> Settings:
        # A job must not read its own output, or the other job's, as input.
        reports, limits = self.own_topics
        taken = dict.fromkeys((*reports, limits), "used by the transport for reports and limits")
        if brokers_of(reports, [limits]) != [None]:
            raise ValueError(
                f"transport.limits_topic: {limits!r} is one of transport.report_topics, too"
            )
        for key, name, stored, _ in self.named_topics:
            if isinstance(self.transport, PulsarTransport):
                name = self.transport.full_name(name)
            elif "://" in name:
                raise ValueError(f"{key}: only Pulsar has topics like {name!r}")
            if stored and is_live(name):
                raise ValueError(f"{key}: {name!r} is not stored; choose a persistent topic")
            if name in taken:
                raise ValueError(f"{key}: the topic {name!r} is already {taken[name]}")
            if brokers_of(reports, [name]) != [None]:
                raise ValueError(f"{key}: {name!r} is one of transport.report_topics, too")
            taken[name] = f"used as {key}"
        return self

    @model_validator(mode="after")
    def _observations_are_read(self) -> Settings:
        topic = self.enforce.report_topic
        if topic is None:
            return self
        if topic == STOCK_REPORTS:
            raise ValueError(
                f"enforce.report_topic: brokers read {topic}, and can't read these reports; use "
                "another topic"
            )
        reports, _ = self.own_topics
        if not isinstance(self.transport, PulsarTransport) or topic not in reports:
            raise ValueError(
                f"enforce.report_topic: {topic!r} is not one of transport.report_topics, so the "
                "job would not read it"
            )
        return self

    @property
    def own_topics(self) -> tuple[tuple[str, ...], str]:
        """The topics of reports, and the topic of limits."""
        if isinstance(self.transport, DeltaTransport):
            return ("reports",), "limits_topic"
        return self.transport.report_topics, self.transport.limits_topic

    @property
    def named_topics(self) -> tuple[NamedTopic, ...]:
        """The topics that further sections name."""
        leader = NamedTopic("enforce.leader_topic", self.enforce.leader_topic, stored=True)
        topic = self.transport.attachments_topic
        if topic is None:
            return (leader,)
        of_attachments = NamedTopic(
            "transport.attachments_topic", topic, stored=True, kept_min=FOREVER
        )
        return leader, of_attachments

    @property
    def senders(self) -> dict[str, Senders]:
        """The sections about senders, by name."""
        return {"reports": self.reports}

    @property
    def spool_folder(self) -> str | None:
        """Folder for reports from topics that don't store them; None: there are none.

        Strict requires that a batch that runs again reads the same reports.
        """
        reports, _ = self.own_topics
        stored = not any(map(is_live, reports))
        if stored or self.limits.transition is not Transition.STRICT:
            return None
        return f"{self.checkpoint.rstrip('/')}/spool"

    @model_validator(mode="after")
    def _spool_is_local(self) -> Settings:
        if self.spool_folder is not None and local_folder(self.checkpoint) is None:
            raise ValueError(
                "limits.transition: strict with reports of a non-persistent topic keeps them "
                f"beside the checkpoint, and {self.checkpoint} is no local folder: set checkpoint "
                "to one, transport.report_topics to persistent topics, or transition to fast"
            )
        return self

    @model_validator(mode="after")
    def _lease_outlives_refresh(self) -> Settings:
        # Limits are renewed within a quarter of a lease, and in a round. A round takes a report
        # interval or a micro-batch.
        needed = 4 * max(self.reports.interval_s, self.trigger.interval_s)
        if self.limits.lease_s < needed:
            raise ValueError(
                f"limits.lease_s must be at least {needed:g} "
                "(4 x the larger of reports.interval_s and trigger.interval_s), or limits run out "
                "before renewal"
            )
        return self


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*\})?")
"""``${``, and the rest of the variable if the text is one."""


_MOST_BYTES: Final = 1 << 20
_MOST_NODES: Final = 50_000
"""Most YAML nodes of a settings file; 10,000 anti-affinity groups fit."""


def load_settings(path: str | Path) -> Settings:
    """Read and check a settings file.

    Raises:
        ConfigError: the file is missing, too large or not YAML, or a key in it is unknown, wrong or
            occurs twice.
    """
    return parse_settings(*_read(path))


def as_written(path: str | Path) -> tuple[Any, dict[str, str]]:
    """The words of a settings file, with environment variables replaced; and these variables.

    Raises:
        ConfigError: the file can't be read, or a variable is not set; keys are not checked.
    """
    used: dict[str, str] = {}
    return _expand(*_read(path), "", used), used


def _read(path: str | Path) -> tuple[object, str]:
    """Content of a settings file, and its absolute path."""
    source = str(Path(path).absolute())
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{source}: has more than {_MOST_BYTES} bytes: no settings file")
        raw = read_value(data.decode("utf-8"), source, most_nodes=_MOST_NODES)
    except OSError as error:
        raise ConfigError(f"{source}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    except InputError as error:
        raise ConfigError(str(error)) from None
    return raw, source


def parse_settings(raw: object, source: str = "settings") -> Settings:
    """Check settings that were parsed already; ``source`` names them in errors."""
    if not isinstance(raw, dict):
        raise ConfigError(f"{source}: expected a mapping of settings at the top")
    try:
        return _whole_class().model_validate(_expand(raw, source, "", {}))
    except ValidationError as error:
        raise ConfigError(first_of_all(error, raw, source, TRANSPORT_KINDS)) from None


@cache
def _whole_class() -> type[Settings]:
    """``Settings`` with the sections of all extensions."""
    found = [load(each.settings) for each in extensions()] or [Settings]
    return found[0] if len(found) == 1 else create_model("Settings", __base__=tuple(found))


def _expand(value: object, source: str, key: str, used: dict[str, str]) -> object:
    """The value with its variables replaced; ``used`` gets these."""
    if isinstance(value, dict):
        return {
            name: _expand(item, source, f"{key}.{name}".strip("."), used)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_expand(item, source, f"{key}.{index}", used) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def lookup(match: re.Match[str]) -> str:
        if match[1] is None:
            raise ConfigError(
                f"{source}: {key}: after ${{ comes the name of an environment variable, and }}: "
                "there are no defaults as in a shell"
            )
        name = match[1].removesuffix("}")
        if not os.environ.get(name):
            found = "empty" if name in os.environ else "not set"
            raise ConfigError(f"{source}: {key}: the environment variable {name} is {found}")
        used[name] = os.environ[name]
        return used[name]

    return _VARIABLE.sub(lookup, value)
