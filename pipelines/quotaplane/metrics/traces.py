"""OpenTelemetry traces of rounds: a span for each round, with a child for each of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

from quotaplane import __version__
from quotaplane.extras import missing_packages_named
from quotaplane.settings import Tracing

_TIMEOUT_S: Final = 5.0
"""Time limit of a request to the collector; spans that it does not accept are dropped."""


class Tracer(Protocol):
    """The used part of the interface of OpenTelemetry's tracers."""

    def start_as_current_span(
        self, name: str, *, attributes: dict[str, Any] | None = None
    ) -> AbstractContextManager[Any]:
        """A context in which a span runs; an exception that leaves it is recorded."""


class RoundTraces:
    """Makes the spans of a job's rounds; without a tracer it does nothing.

    >>> with RoundTraces().round(epoch=1, seq=7), RoundTraces().stage("publish"):
    ...     pass
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer

    def round(self, *, epoch: int, seq: int) -> AbstractContextManager[Any]:
        """The span of a round."""
        numbers = {"quotaplane.epoch": epoch, "quotaplane.seq": seq}
        return self._span("round", numbers)

    def stage(self, name: str) -> AbstractContextManager[Any]:
        """The span of a stage of the current round."""
        return self._span(name, None)

    def _span(self, name: str, attributes: dict[str, Any] | None) -> AbstractContextManager[Any]:
        if self._tracer is None:
            return nullcontext()
        return self._tracer.start_as_current_span(name, attributes=attributes)


@contextmanager
def round_traces(settings: Tracing, program: str) -> Iterator[RoundTraces]:
    """The traces that the settings ask for; spans are sent by a thread, also at the end.

    Headers for the collector, such as a token, are in OpenTelemetry's environment variable
    OTEL_EXPORTER_OTLP_HEADERS.

    Raises:
        ConfigError: the SDK is not installed.
    """
    if settings.endpoint is None:
        yield RoundTraces()
        return
    with missing_packages_named():
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    service = {"service.name": f"quotaplane-{program}", "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(service))
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield RoundTraces(provider.get_tracer("quotaplane", __version__))
    finally:
        provider.shutdown()
