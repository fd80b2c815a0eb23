"""Access to a Pulsar cluster, errors without it, and how limits go out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import TransportError
from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.topic_pool import TopicPool
from quotaplane.pulsar.topics import last_entry
from quotaplane.settings import PulsarTransport
from quotaplane.transport import open_attachments_link, open_broker_link, open_transport
from quotaplane.transport import pulsar as transport_pulsar
from quotaplane.transport.base import Message
from quotaplane.transport.pulsar_options import source_options
from tests.contract.pulsar_following import everything
from tests.contract.rigs import UNREACHABLE, PulsarRig, both_ends, limits_of
from tests.servers.pulsar_security import STRANGER, Issuer
from tests.servers.pulsar_server import PulsarServer
from tests.waiting import wait_until

NOON_MS = 1_790_000_000_000


def with_token(server: PulsarServer, folder: Path) -> dict[str, Any]:
    return server.tls(token=server.token())


def with_token_file(server: PulsarServer, folder: Path) -> dict[str, Any]:
    (folder / "token").write_text(f"{server.token()}\n")
    return server.tls(token_file=str(folder / "token"))


def with_certificate(server: PulsarServer, folder: Path) -> dict[str, Any]:
    assert server.certificates is not None
    certificate, key = server.certificates.client_certificate, server.certificates.client_key
    return server.tls(certificate_file=str(certificate), key_file=str(key))


@pytest.mark.nightly
@pytest.mark.parametrize("security", [with_token, with_token_file, with_certificate, None])
def test_the_whole_way_is_encrypted_and_known(
    secure_rig: PulsarRig, tmp_path: Path, security: Any
) -> None:
    server = secure_rig.server
    with Issuer(server.token()) as issuer:
        key_file = str(issuer.write_key_file(tmp_path / "key.json"))
        oauth2 = {"issuer_url": issuer.url, "audience": "pulsar", "private_key_file": key_file}
        given = security(server, tmp_path) if security else server.tls(oauth2=oauth2)
        settings = secure_rig.settings(**given)
        with both_ends(settings) as (transport, link):
            transport.check()
            link.send_reports([("a", b"report", NOON_MS)])
            transport.publish([Message("a", b"limits")])
            assert limits_of(link) == [Message("a", b"limits")]
        follower = TopicPool(parse_options(source_options(settings)))
        assert everything(follower, follower.begin())[0] == [b"report"]
        follower.close()


@pytest.mark.nightly
def test_a_running_query_does_not_show_secrets(
    secure_rig: PulsarRig, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    token = secure_rig.server.token()
    settings = secure_rig.settings(**secure_rig.server.tls(token=token))
    reports = open_transport(settings).read_reports(spark)
    reports.explain(extended=True)
    with pytest.raises(Exception, match="nonsense") as caught:
        reports.selectExpr("nonsense")
    shown = capsys.readouterr().out
    assert "Physical Plan" in shown
    assert token not in shown + str(caught.value) + repr(settings)


@pytest.mark.nightly
@pytest.mark.parametrize("whose", ["a wrong one", "a stranger's", "none"])
def test_a_wrong_token_is_one_line_without_it(secure_rig: PulsarRig, whose: str) -> None:
    token = {
        "a wrong one": "eyJhbGciOiJIUzI1NiJ9.e30.wrong",
        "a stranger's": secure_rig.server.token(STRANGER),
        "none": None,
    }
    given = secure_rig.server.tls(token=token[whose])
    for admin_url in (given["admin_url"], None):
        given |= {"admin_url": admin_url, "timeout_s": 1.0}
        settings = secure_rig.settings(**given)
        with pytest.raises(TransportError, match=r"check .*security") as caught:
            open_transport(settings).check()
        assert "\n" not in str(caught.value)
        assert token[whose] is None or token[whose] not in str(caught.value)


@pytest.mark.nightly
def test_the_right_to_consume_is_enough_to_read(secure_rig: PulsarRig) -> None:
    server, topic = secure_rig.server, secure_rig.report_topics[1]
    link = open_broker_link(secure_rig.settings(**server.tls(token=server.token())))
    link.send_reports([("a", b"report", NOON_MS)])
    link.close()
    server.rest.call(
        "POST", f"namespaces/{secure_rig.namespace}/permissions/{STRANGER}", ["consume"]
    )
    settings = secure_rig.settings(**server.tls(token=server.token(STRANGER)))
    transport = open_transport(settings)
    transport.check()
    with pytest.raises(TransportError, match="the role may not do this"):
        transport.publish([Message("a", b"limits")])
    transport.close()
    given = source_options(settings)
    given["topics_pattern"] = f"persistent://{secure_rig.namespace}/reports-.*"
    del given["topics"]
    follower = TopicPool(parse_options(given))
    assert everything(follower, follower.begin())[0] == [b"report"]
    follower.close()
    assert last_entry(settings, topic) is not None


@pytest.mark.parametrize(
    "reach", [lambda settings: open_transport(settings).check(), open_broker_link]
)
@pytest.mark.parametrize(
    ("url", "why"),
    [(f"pulsar://{UNREACHABLE}", "refused"), ("pulsar+ssl://{plain}", "SSL|EOF|closed|reset")],
)
def test_an_unreachable_cluster_is_told_in_time(
    pulsar_rig: PulsarRig, reach: Callable[[PulsarTransport], object], url: str, why: str
) -> None:
    url = url.format(plain=pulsar_rig.server.service_url.removeprefix("pulsar://"))
    settings = pulsar_rig.settings(service_url=url, admin_url=None, timeout_s=1.0)
    with pytest.raises(TransportError, match=rf"{re.escape(url)}: can't be .*({why})") as caught:
        reach(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["report_topics", "limits_topic", "attachments_topic"])
@pytest.mark.parametrize("admin", [True, False])
def test_a_missing_topic_is_named_and_not_created(
    pulsar_rig: PulsarRig, key: str, admin: bool
) -> None:
    rest, namespace = pulsar_rig.server.rest, pulsar_rig.namespace
    name = f"persistent://{namespace}/nowhere"
    more: dict[str, Any] = {key: (name,) if key == "report_topics" else name}
    if not admin:
        # Without the REST API, only such a cluster can say that a topic is missing.
        rest.call(
            "POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False}
        )
        more["admin_url"] = None
    with pytest.raises(TransportError, match=f"'{name}'.* does not exist"):
        open_transport(pulsar_rig.settings(**more)).check()
    assert name not in rest.call("GET", f"persistent/{namespace}")


def test_a_topic_of_attachments_that_is_not_compacted_is_named(pulsar_rig: PulsarRig) -> None:
    settings = pulsar_rig.settings(**pulsar_rig.attachments_topic(threshold=0))
    (line,) = open_transport(settings).check()
    assert f"'persistent://{pulsar_rig.namespace}/attachments' is never compacted" in line


def test_of_a_compacted_topic_of_attachments_only_the_newest_are_read(
    pulsar_rig: PulsarRig,
) -> None:
    settings = pulsar_rig.settings(**pulsar_rig.attachments_topic())
    transport, early = open_transport(settings), open_attachments_link(settings)
    for number in range(3):
        transport.publish_attachments([Message(key, b"%d" % number) for key in "ab"])
    before = limits_of(early)
    assert len(before) == 6
    rest, topic = pulsar_rig.server.rest, f"persistent/{pulsar_rig.namespace}/attachments"
    rest.call("PUT", f"{topic}/compaction")
    wait_until(lambda: rest.call("GET", f"{topic}/compaction")["status"] == "SUCCESS")
    late = open_attachments_link(settings)
    assert sorted(limits_of(late)) == [Message("a", b"2"), Message("b", b"2")]
    transport.publish_attachments([Message("a", b"3")])
    for link in (early, late):
        assert limits_of(link) == [Message("a", b"3")]
    for each in (transport, early, late):
        each.close()


@pytest.mark.parametrize("codec", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_limits_are_compressed_as_configured(pulsar_rig: PulsarRig, codec: str) -> None:
    limits = [Message("a", b"x" * 100_000), Message("b", b"y" * 100_000)]
    with both_ends(pulsar_rig.settings(compression=codec)) as (transport, link):
        transport.publish(limits)
        assert sorted(limits_of(link)) == limits
    rest = pulsar_rig.server.rest
    stats = rest.call("GET", f"{pulsar_rig.limits_topic}/partitioned-stats")
    assert (stats["storageSize"] < 50_000) == (codec != "none")


def test_a_link_follows_new_partitions(
    pulsar_rig: PulsarRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_pulsar, "PARTITIONS_MAX_AGE_S", 0.0)
    settings = pulsar_rig.settings()
    link = open_broker_link(settings)
    pulsar_rig.server.rest.call("POST", f"{pulsar_rig.limits_topic}/partitions", 5)
    transport = open_transport(settings)
    limits = [Message(f"broker-{number}", b"after") for number in range(30)]
    transport.publish(limits)
    assert sorted(limits_of(link)) == sorted(limits)
    transport.close()
    link.close()


@pytest.mark.nightly
def test_all_outlive_a_restart_of_the_cluster(
    pulsar_rig: PulsarRig, follow: Callable[..., TopicPool]
) -> None:
    settings = pulsar_rig.settings(timeout_s=2)
    transport, link = open_transport(settings), open_broker_link(settings)
    transport.publish([Message("a", b"before")])
    assert limits_of(link) == [Message("a", b"before")]
    follower = follow(settings.limits_topic, timeout_s=2)
    values, end = everything(follower, follower.begin())
    assert values == [b"before"]
    pulsar_rig.server.stop()
    try:
        with pytest.raises(TransportError, match=pulsar_rig.server.service_url):
            transport.publish([Message("a", b"during")])
        with pytest.raises(TransportError, match=r"topic '.+' can't be read"):
            limits_of(link)
        assert follower.read(end) == ([], end)
    finally:
        pulsar_rig.server.start()

    tried = itertools.count()

    def published() -> bool:
        try:
            transport.publish([Message("a", b"try %d" % next(tried))])
        except TransportError:
            return False
        return True

    wait_until(published)
    taken = [b"try %d" % (next(tried) - 1), *(b"after %d" % number for number in range(20))]
    transport.publish([Message("a", value) for value in taken[1:]])
    limits = [limit.value for limit in limits_of(link)]
    # What was refused in between may be there all the same, once.
    assert limits[-len(taken) :] == taken
    assert len(set(limits)) == len(limits)
    read: list[bytes | None] = []

    def followed() -> bool:
        nonlocal end
        more, end = everything(follower, end)
        read.extend(more)
        return read[-1:] == taken[-1:]

    wait_until(followed)
    assert read == limits
    transport.close()
    link.close()
