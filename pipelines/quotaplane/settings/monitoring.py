"""Settings of what running programs show to a monitoring system."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, model_validator

from quotaplane.settings.section import Section

Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


class MetricsPorts(Section):
    """Where Prometheus reads the metrics of each program; null: nowhere."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen at; every program that reaches it can read the names of groups."""
    job_port: Port | None = None
    """Port of the quota job."""
    throttle_port: Port | None = None
    """Port of the throttle job."""
    enforcer_port: Port | None = None
    """Port of the enforcer."""

    @model_validator(mode="after")
    def _ports_differ(self) -> MetricsPorts:
        given = [port for _, port in self if isinstance(port, int)]
        if len(set(given)) < len(given):
            raise ValueError("the ports of two programs are the same")
        return self


class Tracing(Section):
    """OpenTelemetry traces of rounds."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """URL to which an OpenTelemetry collector takes spans over OTLP/HTTP, for example
    http://localhost:4318/v1/traces; null: no traces."""
