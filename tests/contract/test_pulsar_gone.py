"""Messages gone from a Pulsar topic: reported where that may be loss, and not elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
import pytest

from quotaplane.errors import TransportError
from quotaplane.pulsar.topic_pool import TopicPool
from tests.contract.pulsar_following import again, everything, forget, send, source
from tests.contract.rigs import PulsarRig


@pytest.mark.parametrize("how", ["trimmed", "made anew"])
def test_what_is_gone_stops_a_restart_or_is_left_out(
    pulsar_rig: PulsarRig,
    client: pulsar.Client,
    follow: Callable[..., TopicPool],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    send(client, topic, b"never read")
    if how == "trimmed":
        forget(pulsar_rig, topic)
    else:
        pulsar_rig.server.rest.call("DELETE", f"{topic}?force=true")
        pulsar_rig.server.rest.create_topic(topic)
    send(client, topic, b"left")
    with pytest.raises(TransportError) as caught:
        follow(topic).read(end)
    for part in (topic, f"after {end[topic]} may be gone", "set fail_on_data_loss to false"):
        assert part in str(caught.value)
    values, last = everything(follow(topic, fail_on_data_loss=False), end)
    assert values == [b"left"]
    assert "may be gone" in caplog.text
    assert everything(follow(topic), last) == ([], last)
    # A batch that was planned before can't be read again whole.
    with pytest.raises(TransportError, match="may be gone"):
        again(source(pulsar_rig, topic), {topic: "earliest"}, end)


def test_an_idle_topic_that_was_emptied_is_no_loss(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    forget(pulsar_rig, topic)
    for admin_url in (pulsar_rig.server.admin_url, None):
        restarted = follow(topic, admin_url=admin_url)
        assert restarted.read(end) == ([], end)
    send(client, topic, b"new")
    assert everything(restarted, end)[0] == [b"new"]


def test_the_rest_api_knows_what_came_and_went(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    send(client, topic, b"never read")
    forget(pulsar_rig, topic)
    with pytest.raises(TransportError, match="may be gone"):
        follow(topic).read(end)
    # Who may not ask it can't tell this from an idle topic: docs/operate/pulsar.md says so.
    assert follow(topic, admin_url=None).read(end) == ([], end)
