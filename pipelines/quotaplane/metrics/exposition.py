"""The metrics of a program as Prometheus reads them: a registry, and an endpoint on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from quotaplane import __version__
from quotaplane.errors import ConfigError
from quotaplane.metrics.declaration import OTHER, Kind, Metric
from quotaplane.metrics.of_jobs import BUILD_INFO
from quotaplane.metrics.of_programs import PROGRAMS
from quotaplane.metrics.readings import Distribution, Key, Numbers, Readings

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

Read = Callable[[], Readings]

_NOTHING: Final[Numbers] = {}


class _Readings(Collector):
    """Metrics whose numbers are read when Prometheus asks."""

    def __init__(self, metrics: Sequence[Metric], read: Read) -> None:
        self._metrics, self._read = metrics, read

    def describe(self) -> list[Any]:
        """Nothing, so that registering does not read."""
        return []

    def collect(self) -> Iterator[Any]:
        """A family for each metric."""
        readings = self._read()
        for metric in self._metrics:
            if metric.kind is Kind.HISTOGRAM:
                yield _histogram(metric, readings.durations.get(metric.source, {}))
            else:
                yield _family(metric, readings.numbers.get(metric.source, _NOTHING))


def _family(metric: Metric, numbers: Numbers) -> Any:
    names = [label.name for label in metric.labels]
    if metric.kind is Kind.INFO:
        info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help)
        for key in numbers:
            info.add_metric([], dict(zip(names, key, strict=True)))
        return info
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=names)
    for key, number in bounded(metric, numbers).items():
        family.add_metric(key, number)
    return family


def bounded(metric: Metric, numbers: Numbers) -> dict[Key, float]:
    """The numbers with label values as declared; of counters also those that are still 0.

    >>> from quotaplane.metrics.declaration import Label
    >>> metric = Metric("quotaplane_x_total", Kind.COUNTER, "x", labels=(Label("k", ("a", "b")),))
    >>> bounded(metric, {("a",): 2, ("invented",): 3, ("more",): 1})
    {('a',): 2.0, ('b',): 0.0, ('other',): 4}
    """
    kept: dict[Key, float] = {}
    if metric.kind is Kind.COUNTER and not metric.labels:
        kept[()] = 0.0
    elif metric.kind is Kind.COUNTER and len(metric.labels) == 1:
        kept = {(value,): 0.0 for value in metric.labels[0].values}
    seen: list[set[str]] = [set() for _ in metric.labels]
    for key, number in numbers.items():
        allowed = tuple(
            value if _is_allowed(value, label.values, label.most, taken) else OTHER
            for value, label, taken in zip(key, metric.labels, seen, strict=True)
        )
        if OTHER in allowed and metric.kind is Kind.GAUGE:
            continue  # a sum of gauges would mean nothing
        kept[allowed] = kept.get(allowed, 0) + number
    return kept


def _is_allowed(value: str, values: tuple[str, ...], most: int, taken: set[str]) -> bool:
    """Whether a label may have the value; ``taken`` has those that it has already."""
    if values:
        return value in values
    if value not in taken and len(taken) >= most:
        return False
    taken.add(value)
    return True


def _histogram(metric: Metric, durations: Mapping[Key, Distribution]) -> Any:
    family = HistogramMetricFamily(
        metric.name, metric.help, labels=[label.name for label in metric.labels]
    )
    for key, (counts, total_s) in durations.items():
        buckets, below = [], 0
        for bound, count in zip((*map(str, metric.buckets), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(key, buckets, total_s)
    return family


def registry_of(program: str, read: Read | None = None) -> CollectorRegistry:
    """The metrics of a program: a key of ``PROGRAMS``.

    ``read`` returns the current numbers; it is called from the endpoint's threads. Metrics without
    a source are counted by instruments (``instruments``). The metrics of the process (memory,
    processor time, start time) are there, too.
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    info = Readings({"build": {(__version__, program): 1}})
    sourced = [metric for metric in PROGRAMS[program] if metric.source != BUILD_INFO.source]
    registry.register(_Readings([BUILD_INFO], lambda: info))
    if read is not None:
        registry.register(_Readings([metric for metric in sourced if metric.source], read))
    return registry


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """An instrument that counts a metric without a source: ``.labels(...).inc()``."""
    return Counter(metric.name, metric.help, _names(metric), registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry) -> Histogram:
    """An instrument that measures a metric without a source: ``.labels(...).observe(seconds)``."""
    return Histogram(
        metric.name, metric.help, _names(metric), registry=registry, buckets=metric.buckets
    )


def _names(metric: Metric) -> list[str]:
    return [label.name for label in metric.labels]


@contextmanager
def endpoint(
    registry: CollectorRegistry,
    host: str,
    port: int,
    key: str,
    waits_for: Callable[[], str | None] = lambda: None,
) -> Iterator[str]:
    """A context in which the metrics are served on a thread; its value is the URL.

    ``/readyz`` beside them answers 200, or 503 with the word that ``waits_for`` gives: what the
    program's start still waits for. The thread answers while the program's other threads hang.
    ``key``: the setting that has the port, for the message.

    Raises:
        ConfigError: the port is taken, or can't be opened.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"{key}: can't serve metrics at {host}, port {port}: "
            f"{getattr(error, 'strerror', None) or error}; choose another port, or null for none"
        ) from None
    metrics = server.get_app()
    assert metrics is not None, "start_http_server set it"
    server.set_app(_with_readiness(metrics, waits_for))
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_readiness(
    metrics: WSGIApplication, waits_for: Callable[[], str | None]
) -> WSGIApplication:
    """The application of the metrics, with ``/readyz``."""

    def answer(environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/readyz":
            return metrics(environ, respond)
        waits = waits_for()
        status = "200 OK" if waits is None else "503 Service Unavailable"
        respond(status, [("Content-Type", "text/plain")])
        return [b"ready\n" if waits is None else f"waits for {waits}\n".encode()]

    return answer
