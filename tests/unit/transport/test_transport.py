"""Options, settings files and imports of the transports: no server, no JVM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ConfigError
from quotaplane.settings import (
    DeltaTransport,
    KafkaSecurity,
    KafkaTransport,
    PulsarSecurity,
    Settings,
    load_settings,
    parse_settings,
)
from quotaplane.settings.transports import STOCK_REPORTS
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from quotaplane.transport.delta import maintain
from quotaplane.transport.kafka_options import (
    client_options,
    jaas_config,
    size_warnings,
    source_options,
)
from tests.unit.repo.pages import ROOT
from tests.unit.streams.shard_cases import job_settings

CONF = ROOT / "conf"


def kafka(**more: Any) -> KafkaTransport:
    topics = {"report_topics": ["r1", "r2"], "limits_topic": "limits"}
    return KafkaTransport.model_validate(
        {"kind": "kafka", "bootstrap_servers": "one:9092, two:9092", **topics, **more}
    )


_NEEDED = {
    "local": ("kind", "path"),
    "kafka": ("kind", "bootstrap_servers", "report_topics", "limits_topic"),
    "pulsar": ("kind", "service_url", "admin_url", "limits_topic"),
}


@pytest.mark.parametrize("name", ["local", "kafka", "pulsar"])
def test_shipped_settings_are_valid_and_show_every_key_with_its_default(name: str) -> None:
    path = CONF / f"{name}.yaml"
    settings = load_settings(path)
    shown = yaml.safe_load(path.read_text())
    needed = {
        "transport": {
            key: value for key, value in shown["transport"].items() if key in _NEEDED[name]
        },
        "history": {"path": shown["history"]["path"]},
        "checkpoint": shown["checkpoint"],
    }
    if name == "pulsar":
        needed["cluster"] = {}
        # Observed usage is on in this file; its topic may lose reports that nobody needs.
        transport = shown["transport"]
        observed = "persistent://public/quotaplane/observed-usage"
        assert transport["report_topics"] == [STOCK_REPORTS, observed]
        turned_on = {"report_topics": transport["report_topics"], "fail_on_data_loss": False}
        needed["transport"] |= turned_on
        needed["enforce"] = {"report_topic": observed}
    # An example has no tokens, so it must say who may do what without one.
    needed["server"] = {"anonymous": "viewer"} if settings.server is not None else None
    assert parse_settings(needed) == settings
    # The balancer's section is in balance.yaml, and what only Pulsar has in pulsar.yaml.
    elsewhere = {"balance"} if name == "pulsar" else {"balance", "cluster", "enforce"}
    if name != "local":  # commented out: without tokens it would serve nobody
        elsewhere = elsewhere | {"server"}
    assert shown.keys() == Settings.model_fields.keys() - elsewhere
    if name == "pulsar":
        assert shown["transport"]["security"].keys() == PulsarSecurity.model_fields.keys()
    for section, values in shown.items():
        if isinstance(values, dict):
            model = type(getattr(settings, section))
            missing = model.model_fields.keys() - values.keys()
            assert values.keys() <= model.model_fields.keys(), section
            # Ports of programs that an example has not.
            assert not missing or section == "metrics", section


@pytest.mark.parametrize(("protocol", "used"), [("SASL_SSL", 5), ("SSL", 5)])
def test_commented_security_blocks_are_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str, used: int
) -> None:
    lines = (CONF / "kafka.yaml").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.strip() == f"# protocol: {protocol}")
    block = [lines[n].replace("# ", "", 1) for n in range(first, first + used)]
    plain = next(n for n, line in enumerate(lines) if line.strip() == "protocol: PLAINTEXT")
    lines[plain : plain + 1] = block
    for name in re.findall(r"\$\{(\w+)\}", "\n".join(block)):
        monkeypatch.setenv(name, f"value of {name}")
    (tmp_path / "kafka.yaml").write_text("\n".join(lines))
    transport = load_settings(tmp_path / "kafka.yaml").transport
    assert isinstance(transport, KafkaTransport)
    security = transport.security
    assert security.protocol == protocol
    assert security.ca_file == "value of KAFKA_CA_FILE"
    secret = security.password if protocol == "SASL_SSL" else security.key_password
    assert secret is not None
    assert secret.get_secret_value().startswith("value of KAFKA_")
    assert secret.get_secret_value() not in repr(transport)


@pytest.mark.parametrize(
    ("reports_s", "trigger_s", "least_s"), [(5, 1, 20), (5, 0, 20), (1, 60, 240), (60, 60, 240)]
)
def test_a_lease_lasts_until_its_renewal(reports_s: int, trigger_s: int, least_s: int) -> None:
    """A round is as rare as reports, or as micro-batches: whichever is rarer."""

    def settings(lease_s: float) -> Settings:
        sections = {"trigger": {"interval_s": trigger_s}, "reports": {"interval_s": reports_s}}
        return job_settings(**sections, limits={"lease_s": lease_s})

    assert settings(least_s).limits.lease_s == least_s
    with pytest.raises(ConfigError) as caught:
        settings(least_s - 0.5)
    assert str(caught.value).startswith(f"settings: limits.lease_s must be at least {least_s} (4 x")


@pytest.mark.parametrize("value", [0, 2.9, -1, "never"])
def test_a_job_does_not_end_before_it_could_warn(value: object) -> None:
    with pytest.raises(ConfigError, match=r"reports\.stop_when_unusable_intervals"):
        job_settings(reports={"stop_when_unusable_intervals": value})


def test_strict_spools_reports_that_their_topics_do_not_store() -> None:
    plain = yaml.safe_load((CONF / "pulsar.yaml").read_text())
    strict = {**plain, "enforce": {}, "limits": {"transition": "strict"}}
    assert parse_settings(plain).spool_folder is None
    assert parse_settings(strict).spool_folder == "data/pulsar/checkpoint/spool"
    kept = ["persistent://public/quotaplane/reports"]
    mixed = {**plain["transport"], "report_topics": [*kept, "non-persistent://a/b/live"]}
    assert parse_settings({**strict, "transport": mixed}).spool_folder is not None
    all_kept = {**strict, "transport": {**mixed, "report_topics": kept}}
    assert parse_settings(all_kept).spool_folder is None
    far = {"checkpoint": "hdfs://name/checkpoint"}
    with pytest.raises(ConfigError) as found:
        parse_settings({**strict, **far}, source="pulsar.yaml")
    assert str(found.value).startswith(
        "pulsar.yaml: limits.transition: strict with reports of a non-persistent topic keeps them "
        "beside the checkpoint, and hdfs://name/checkpoint is no local folder: "
    )
    assert found.value.exit_code == 2
    parse_settings({**all_kept, **far})
    parse_settings({**plain, **far})


def test_source_options_are_what_spark_expects() -> None:
    assert source_options(
        kafka(max_reports_per_trigger=7, fail_on_data_loss=False, timeout_s=2.5)
    ) == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "subscribe": "r1,r2",
        "startingOffsets": "latest",
        "failOnDataLoss": "false",
        "groupIdPrefix": "quotaplane",
        "kafka.max.partition.fetch.bytes": str(16 << 20),
        "kafka.fetch.max.wait.ms": "10",
        "kafka.request.timeout.ms": "2500",
        "kafka.default.api.timeout.ms": "2500",
        "fetchOffset.numRetries": "51",
        "maxOffsetsPerTrigger": "7",
        "kafka.security.protocol": "PLAINTEXT",
    }


ADVISED = {"compression.type": "uncompressed", "max.message.bytes": "8388608"}


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"r1": ADVISED, "r2": ADVISED}, ""),
        ({"r1": ADVISED, "r2": ADVISED | {"max.message.bytes": "8454144"}}, ""),
        ({"r1": ADVISED, "r2": ADVISED | {"max.message.bytes": "8454145"}}, "topics 'r2' can hold"),
        ({"r1": ADVISED | {"compression.type": "producer"}, "r2": ADVISED}, "topics 'r1' can hold"),
        ({"r1": {}, "r2": {}}, "topics 'r1', 'r2' may hold .*DescribeConfigs"),
        ({"r1": ADVISED, "r2": {}}, "topics 'r2' may hold .*DescribeConfigs"),
    ],
)
def test_topics_that_let_large_records_through_are_one_warning(
    configs: dict[str, dict[str, str]], says: str
) -> None:
    found = size_warnings(kafka(), configs, 8 << 20)
    assert len(found) == (1 if says else 0)
    assert re.search(says, "".join(found))


def test_certificates_travel_to_java_by_value(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("the authority")
    (tmp_path / "me.pem").write_text("the certificate")
    (tmp_path / "me.key").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----")
    files = {"ca_file": "ca.pem", "certificate_file": "me.pem", "key_file": "me.key"}
    security = {name: str(tmp_path / file) for name, file in files.items()}
    options = source_options(kafka(security={"protocol": "SSL", **security}))
    assert options["kafka.ssl.truststore.certificates"] == "the authority"
    assert options["kafka.ssl.keystore.certificate.chain"] == "the certificate"
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert not any(str(tmp_path) in value for value in options.values())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("RSA PRIVATE KEY", "AAAA"),
        ("EC PRIVATE KEY", "AAAA"),
        # SEQUENCE { SEQUENCE { OID 1.2.840.113549.1.5.13 ...: encrypted by PBES2
        ("ENCRYPTED PRIVATE KEY", "MIHjME4GCSqGSIb3DQEFDTBBMCkGCSqGSIb3DQEFDDAcBAg="),
    ],
)
def test_keys_that_java_cannot_read_are_told_at_once(tmp_path: Path, kind: str, body: str) -> None:
    (tmp_path / "me.pem").write_text("the certificate")
    (tmp_path / "me.key").write_text(f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
    files = {"certificate_file": f"{tmp_path}/me.pem", "key_file": f"{tmp_path}/me.key"}
    security = {"protocol": "SSL", **files}
    with pytest.raises(ConfigError, match=r"transport\.security\.key_file: .*openssl pkcs8 -topk8"):
        source_options(kafka(security=security))


@pytest.mark.parametrize("build", [client_options, source_options])
def test_a_missing_certificate_is_named(build: Any, tmp_path: Path) -> None:
    settings = kafka(security={"protocol": "SSL", "ca_file": str(tmp_path / "none.pem")})
    with pytest.raises(ConfigError, match=r"transport\.security\.ca_file: .*none\.pem: can't be r"):
        build(settings)


def test_client_options_carry_the_login() -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "username": "me", "password": "secret"}
    security = KafkaSecurity.model_validate({"protocol": "SASL_SSL", **login})
    options = client_options(kafka(security=security))
    assert options["bootstrap_servers"] == ["one:9092", "two:9092"]
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert options["sasl_plain_username"] == "me"
    assert options["sasl_plain_password"] == "secret"
    assert "ssl_cafile" not in options


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_login_survives_its_escaping(username: str, password: str) -> None:
    line = jaas_config("PLAIN", username, password)
    assert "\n" not in line
    # How Java's StreamTokenizer reads a quoted string.
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
    plain = [
        re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), text) for text in quoted
    ]
    assert plain == [username, password]
    assert line.endswith(";")


def test_the_embedded_transport_needs_a_local_folder() -> None:
    settings = DeltaTransport(kind="delta", path="s3://bucket/topics")
    for build in (open_transport, open_broker_link):
        with pytest.raises(ConfigError, match=r"transport\.path: s3://bucket/topics: .*local"):
            build(settings)


def test_a_poll_of_the_embedded_transport_ends_at_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quotaplane.transport.delta.PORTION_BYTES", 1000)
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    transport = open_transport(settings)
    sizes = [10] * 12 + [600] * 5
    for number, size in enumerate(sizes):
        transport.publish([Message("b1", bytes([number]) * size)])
    link = open_broker_link(settings, limits_from="earliest")
    portions = []
    while not portions or portions[-1].more:
        portions.append(link.poll_limits())
    read = [[len(one.value) for one in portion.messages] for portion in portions]
    # Reads of 1, 2, 4 and 8 versions, as these are small; then of one, as the last was not.
    assert read == [[10] * 12 + [600] * 3, [600, 600]]


IMPORTS = """
import sys
def imported():
    return {"pyspark", "kafka", "deltalake"} & set(sys.modules)
import quotaplane.transport
assert imported() == set()
sys.modules["kafka"] = None
kafka = quotaplane.settings.KafkaTransport(
    kind="kafka", bootstrap_servers="h:1", report_topics=("r",), limits_topic="l"
)
try:
    quotaplane.transport.open_broker_link(kafka)
except quotaplane.errors.ConfigError as error:
    assert "pip install 'quotaplane[kafka]'" in str(error)
else:
    raise AssertionError("kafka is not needed")
del sys.modules["kafka"]
import quotaplane.transport.kafka
assert imported() == {"kafka"}
for name in [*sys.modules]:
    if name.startswith(("kafka", "quotaplane.transport")):
        del sys.modules[name]
import quotaplane.transport.delta
assert imported() == {"deltalake"}
"""


def test_a_transport_imports_only_what_it_needs_and_says_what_to_install() -> None:
    environment = {"PYTHONPATH": str(ROOT / "pipelines")}
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, env=environment)


def test_versions_of_the_embedded_topic_are_read_again_also_when_files_were_merged_or_deleted(
    tmp_path: Path,
) -> None:
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    link, topics = open_broker_link(settings), open_transport(settings)
    for n in range(30):
        link.send_reports([(f"b{k}", f"{n}-{k}".encode(), 1000 * n + k) for k in range(2)])

    def again(first: int | None, last: int, index: int = -1) -> list[str]:
        """Read from the first of these versions until before the last."""
        begin, end = ({"reservoirVersion": version, "index": -1} for version in (first, last))
        batches = topics.read_between(None if first is None else begin, {**end, "index": index})
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert all(row["key"] == b"b" + row["value"][-1:] and row["topic"] is None for row in rows)
        assert len({row["position"] for row in rows}) == len(rows)
        return [row["value"].decode() for row in rows]

    def sent(*numbers: int) -> list[str]:
        return [f"{n}-{k}" for n in numbers for k in range(2)]

    # Version 0 made the table.
    assert again(3, 6) == sent(2, 3, 4)
    assert again(3, 6, index=0) == sent(2, 3, 4, 5)
    assert again(1, 28) == sent(*range(27))
    assert again(None, 3) == sent(0, 1)  # where its begin is not known
    maintain(settings, keep_s=1e9)
    assert again(3, 6) == sent(2, 3, 4)
    maintain(settings, keep_s=0)
    assert again(3, 6) == []
    link.send_reports([("b0", b"30-0", 30_000)])
    newest = DeltaTable(str(tmp_path / "reports")).version()
    assert again(3, newest + 1) == ["30-0"]
