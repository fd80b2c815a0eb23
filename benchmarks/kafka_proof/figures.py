"""How good a contender was in a scenario, with what only clients of Kafka show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from benchmarks.kafka_proof.record import KafkaRecord
from benchmarks.quota_proof.figures import Figures, figures


@dataclass(frozen=True)
class KafkaFigures(Figures):
    """One row of the table; of the worst tenant."""

    mute_s: float
    """See ``KafkaRecord``; so are the others."""
    throttle_s: float
    others_refused: float
    others_mute_s: float


def found_in(records: Sequence[KafkaRecord]) -> dict[tuple[str, str], KafkaFigures]:
    """The figures of each scenario and contender, whose records are one after the other."""

    def of(record: KafkaRecord) -> tuple[str, str]:
        return record.scenario, record.contender

    return {at: _worst([_judge(each) for each in own]) for at, own in groupby(records, of)}


def _judge(record: KafkaRecord) -> KafkaFigures:
    return KafkaFigures(
        **asdict(figures(record)),
        mute_s=record.mute_s,
        throttle_s=record.throttle_s,
        others_refused=record.others_refused,
        others_mute_s=record.others_mute_s,
    )


def _worst(tenants: Sequence[KafkaFigures]) -> KafkaFigures:
    """Each figure of the tenant that is worst off in it."""
    if len(tenants) == 1:
        return tenants[0]
    columns = {name: [value[name] for value in map(asdict, tenants)] for name in asdict(tenants[0])}
    seconds = columns.pop("seconds_to_fair")
    refused = [value for value in columns.pop("throttled_innocents") if value is not None]
    least = {name: min(columns.pop(name)) for name in ("utilisation", "worst_share")}
    return KafkaFigures(
        seconds_to_fair=None if None in seconds else max(seconds),
        throttled_innocents=max(refused, default=None),
        **least,
        **{name: max(values) for name, values in columns.items()},
    )
