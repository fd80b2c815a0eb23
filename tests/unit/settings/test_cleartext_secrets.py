"""Tokens and passwords travel encrypted, or not at all, unless the settings allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.errors import ConfigError
from quotaplane.pulsar.options import parse_options
from quotaplane.settings import parse_settings
from tests.unit.repo.pages import ROOT

CONF = ROOT / "conf"

TOKEN = {"token": "hush"}
OAUTH2 = {"oauth2": {"audience": "a", "client_id": "i", "client_secret": "hush"}}
SCRAM = {"sasl_mechanism": "SCRAM-SHA-512", "username": "me", "password": "hush"}
KEY = {"auth": {"hs256_secret": "x" * 32}}


def settings_with(name: str, **sections: dict[str, Any]) -> dict[str, Any]:
    """The example settings with some keys of some sections changed."""
    raw: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    for section, keys in sections.items():
        raw[section] = raw.get(section, {}) | keys
    return raw


def pulsar(service: str, admin: str | None, security: dict[str, Any]) -> dict[str, Any]:
    transport = {"service_url": service, "admin_url": admin, "security": security}
    return settings_with("pulsar", transport=transport)


def oauth2(issuer: str) -> dict[str, Any]:
    security = {"oauth2": {**OAUTH2["oauth2"], "issuer_url": issuer}}
    return pulsar("pulsar+ssl://b1:6651", "https://b1:8443", security)


def kafka(servers: str, protocol: str, security: dict[str, Any]) -> dict[str, Any]:
    transport = {"bootstrap_servers": servers, "security": {"protocol": protocol, **security}}
    return settings_with("kafka", transport=transport)


def server(**keys: Any) -> dict[str, Any]:
    return settings_with("local", server={"host": "0.0.0.0", "anonymous": "none", **keys})


REFUSED = {
    "Pulsar, client": (
        pulsar("pulsar://b1:6650", "https://b1:8443", TOKEN),
        "transport.service_url: security.token would go to b1 in clear text; use pulsar+ssl://",
    ),
    "Pulsar, second of two brokers": (
        pulsar("pulsar://localhost:6650,b2:6650", "https://b1:8443", TOKEN),
        "transport.service_url: security.token would go to b2 in clear text",
    ),
    "Pulsar, REST": (
        pulsar("pulsar+ssl://b1:6651", "http://b1:8080", {"token_file": "/etc/token"}),
        "transport.admin_url: security.token_file would go to b1 in clear text; use https://",
    ),
    "Pulsar, password in the URL": (
        pulsar("pulsar+ssl://b1:6651", "http://me:hush@b1:8080", {}),
        "transport.admin_url: its password would go to b1 in clear text",
    ),
    "OAuth2": (
        oauth2("http://issuer.example"),
        "transport.security.oauth2.issuer_url: the client's secret would go to issuer.example",
    ),
    "Kafka": (
        kafka("localhost:9092, k2:9092", "SASL_PLAINTEXT", SCRAM),
        "transport.security.protocol: SASL_PLAINTEXT sends the password, or what it can be guessed "
        "from, to k2 in clear text; use SASL_SSL",
    ),
    "server": (server(**KEY), "server: host 0.0.0.0 is reached from other hosts"),
    "traces": (
        settings_with("local", tracing={"endpoint": "http://me:hush@otel:4318/v1/traces"}),
        "tracing.endpoint: its password would go to otel in clear text",
    ),
}


@pytest.mark.parametrize("edge", REFUSED)
def test_a_secret_in_clear_text_is_refused_unless_it_is_allowed(edge: str) -> None:
    raw, said = REFUSED[edge]
    with pytest.raises(ConfigError) as caught:
        parse_settings(raw, "my.yaml")
    line = str(caught.value)
    assert line.startswith(f"my.yaml: {said}")
    assert line.endswith(", or allow it with security.allow_cleartext_secrets: true")
    assert caught.value.exit_code == 2
    assert "hush" not in line
    assert "\n" not in line
    parse_settings({**raw, "security": {"allow_cleartext_secrets": True}})


@pytest.mark.parametrize(
    "raw",
    [
        pulsar("pulsar+ssl://b1:6651,b2:6651", "https://b1:8443", TOKEN),
        pulsar("pulsar://127.0.0.1:6650,[::1]:6650", "http://localhost:8080", TOKEN),
        pulsar("pulsar://b1:6650", "http://b1:8080", {}),
        oauth2("https://issuer.example"),
        oauth2("http://127.0.0.1:9000"),
        kafka("k1:9092", "SASL_SSL", SCRAM),
        kafka("localhost:9092,127.0.0.1:9093", "SASL_PLAINTEXT", SCRAM),
        kafka("k1:9092", "PLAINTEXT", {}),
        server(**KEY, tls="ended-by-a-proxy"),
        server(**KEY, host="127.0.0.1"),
        settings_with("local", tracing={"endpoint": "http://otel:4318/v1/traces"}),
    ],
)
def test_encrypted_local_and_open_connections_are_allowed(raw: dict[str, Any]) -> None:
    parse_settings(raw)


@pytest.mark.parametrize(
    "command",
    [
        ("enforce", "pulsar"),
        ("balance", "collect"),
        ("balance", "execute", "--auto"),
        ("serve",),
        ("groups", "list"),
    ],
)
def test_every_program_refuses_at_its_start(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(pulsar("pulsar://b1:6650", "http://b1:8080", TOKEN)))
    assert main([*command, "--conf", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"quotaplane: error: {path}: transport.service_url: security.token")


def test_the_data_source_for_spark_refuses_too() -> None:
    options = {"service_url": "pulsar://b1:6650", "topic": "t", "token": "hush"}
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    assert str(caught.value) == (
        'format("pulsar"): service_url: security.token would go to b1 in clear text; use '
        "pulsar+ssl://, or set option allow_cleartext_secrets to true"
    )
    parse_options({**options, "allow_cleartext_secrets": "true"})
    parse_options({**options, "service_url": "pulsar://localhost:6650"})
