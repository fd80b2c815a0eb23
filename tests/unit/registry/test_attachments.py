"""`quotaplane groups attach`, `detach` and `attachments`; and what brokers get to know of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.errors import InputError
from quotaplane.groups.attachments import Kind, check_attachable
from quotaplane.registry import attachments
from quotaplane.registry.attachments import AttachmentsInForce, attach
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import Command, quota
from tests.unit.streams.shard_cases import raw_settings


def put(history: History, *groups: str) -> None:
    make_history(history)
    put_groups(history, list(groups), quota(1.0).repeat(len(groups), axis=0), "ann")


def test_each_kind_is_attached_listed_and_detached(groups: Command) -> None:
    for group in ("batch", "acme", "user=alice"):
        groups("put", group)
    change = groups("attach", "batch", "--user", "CN=al", "--client", "<default>")
    scope = "user=CN%3Dal,client=<default>"
    assert change == {"kind": "scope", "name": scope, "from": None, "to": "batch"}
    groups("attach", "user=alice", "--client", "app", "--by", "ann", "--why", "shared")
    for option, name in (("tenant", "acme"), ("namespace", "acme/orders"), ("topic", "orders-")):
        groups("attach", "acme", f"--{option}", name)
    assert groups("attach", "batch", "--tenant", "acme")["from"] == "acme"
    found = [(row["kind"], row["name"], row["resource_group"]) for row in groups("attachments")]
    assert found == [
        ("namespace", "acme/orders", "acme"),
        ("scope", "client=app", "user=alice"),
        ("scope", scope, "batch"),
        ("tenant", "acme", "batch"),
        ("topic", "orders-", "acme"),
    ]
    [row] = groups("attachments", "user=alice")
    assert row["updated_by"] == "ann"
    assert "namespace acme/orders, topic orders- are attached" in groups.refused("delete", "acme")
    assert groups("detach", "--topic", "orders-")["from"] == "acme"
    assert groups("detach", "--topic", "orders-")["from"] is None
    assert groups("attachments", "acme")[0]["name"] == "acme/orders"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["attach", "g"], "attach takes one of --user and --client, --tenant"),
        (["detach", "--tenant", "a", "--user", "b"], "detach takes one of"),
        (["attach", "nope", "--tenant", "a"], "group 'nope' does not exist"),
        (["attach", "g", "--user", ""], "--user: must not be empty"),
        (["attach", "g", "--namespace", "a"], "namespace 'a': must be TENANT/NAME of letters"),
        (["attach", "g", "--topic", "a b"], "topic 'a b': must be the beginning of a name of"),
        (["attach", "g", "--topic", "a" * 1025], "longer than 1024 characters"),
    ],
)
def test_what_can_not_be_attached_is_refused(groups: Command, words: list[str], text: str) -> None:
    groups("put", "g")
    assert text in groups.refused(*words)
    assert groups("attachments") == []


@pytest.mark.parametrize("name", ["", "user=a b", "client=a,user=b", "user=a::b", "acme"])
def test_a_scope_has_one_spelling(name: str) -> None:
    with pytest.raises(InputError, match=r"^scope '"):
        check_attachable("scope", name)


def test_settings_say_who_else_keeps_attachments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulsar = {
        "kind": "pulsar",
        "service_url": "pulsar://localhost:6650",
        "admin_url": "http://localhost:8080",
        "limits_topic": "persistent://a/b/limits",
    }
    raw = raw_settings(tmp_path, transport=pulsar, cluster={})
    conf = tmp_path / "conf.yaml"
    conf.write_text(yaml.safe_dump(raw), "utf-8")
    history = History(path=raw["history"]["path"])
    put(history, "g")
    assert main(["groups", "attach", "g", "--tenant", "acme", "--conf", str(conf)]) == 2
    assert "cluster.tenants has those of tenants" in capsys.readouterr().err
    assert main(["groups", "attach", "g", "--user", "alice", "--conf", str(conf)]) == 0
    assert "transport.attachments_topic is not set" in capsys.readouterr().err


def test_scopes_are_attached_to_themselves_unless_to_others(history: History) -> None:
    put(history, "user=alice", "user=bob", "user=<default>", "client=<default>", "acme")
    given: tuple[tuple[Kind, str], ...] = (
        ("scope", "user=bob"),
        ("scope", "client=<default>"),
        ("tenant", "acme"),
        ("topic", "user=alice"),
    )
    for kind, name in given:
        attach(history, kind, name, "acme", "ann")
    assert AttachmentsInForce(history).changed() == {
        "user=alice": "user=alice",
        "user=bob": "acme",
        "client=<default>": "acme",
        "tenant=acme": "acme",
        "topic=user=alice": "acme",
    }


def test_tables_are_read_only_after_they_have_changed(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(history, "user=alice", "g")
    in_force, read = AttachmentsInForce(history), attachments.read_rows
    reads: list[object] = []
    monkeypatch.setattr(
        attachments, "read_rows", lambda *given: [reads.append(given), read(*given)][1]
    )
    assert in_force.changed() == {"user=alice": "user=alice"}
    for _ in range(100):
        assert in_force.changed() is None
    assert len(reads) == 2
    attach(history, "tenant", "acme", "g", "ann")
    reads.clear()
    assert in_force.changed() == {"user=alice": "user=alice", "tenant=acme": "g"}
    delete_groups(history, ["user=alice"], "ann")
    assert in_force.changed() == {"tenant=acme": "g"}
    attach(history, "tenant", "acme", None, "ann")
    assert in_force.changed() == {}
