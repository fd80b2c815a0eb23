"""A settings file that is wrong is refused in one line that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.errors import ConfigError
from quotaplane.replay.player import changed_settings
from quotaplane.settings import load_settings
from quotaplane.streams.quota.job import QuotaSpec, recorded_settings

SECRET = "s3cr3t-of-signatures-0123456789abcdef"

GOOD = """\
transport: {kind: delta, path: topics}
history: {path: history}
checkpoint: checkpoint
"""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            "server: {port: 1}\nserver: {anonymous: viewer}\n",
            "line 5: server: the key occurs twice",
        ),
        ("server: {host: a, host: b}\n", "line 4: host: the key occurs twice"),
        ("server: {prot: 1}\n", "server.prot: unknown key"),
        ("limits: [\n", "line 5: not YAML"),
        ("1: 2\n", "line 4: the key 1 must be text"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, more: str, says: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(GOOD + more)
    with pytest.raises(ConfigError) as raised:
        load_settings(file)
    assert str(raised.value).startswith(f"{file}: {says}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "a text\n", "- a", "[]", "- history: {path: h}\n"])
def test_a_file_must_be_a_mapping(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="expected a mapping of settings at the top"):
        load_settings(file)


@pytest.mark.parametrize(
    ("signing", "says"),
    [
        ("{}", "limits.signing.keys: is required (and 1 more)"),
        ("{keys: {a: '${SECRET}'}}", "limits.signing.sign_with: is required"),
        (
            "{keys: {a: '${UNSET}'}, sign_with: a}",
            "limits.signing.keys.a: the environment variable",
        ),
        ("{keys: {a: short}, sign_with: a}", "limits.signing: keys.a: must have at least 32"),
        ("{keys: {}, sign_with: a}", "limits.signing: keys: there must be at least one"),
        ("{keys: {a: '${SECRET}'}, sign_with: b}", "limits.signing: sign_with: must be the id of"),
        (
            "{keys: {a: '${SECRET}', b: '${SECRET}'}, sign_with: a}",
            "limits.signing: keys.b: is the",
        ),
        ("{keys: {a: '${SECRET} '}, sign_with: a}", "limits.signing: keys.a: has a character"),
        ("{keys: {a: 5}, sign_with: a}", "limits.signing.keys.a: must be a string, not a number"),
        ("{keys: '${SECRET}', sign_with: a}", "limits.signing.keys: must be an object"),
        ("'${SECRET}'", "limits.signing: must be an object, not a string"),
        ("{keys: {PLAIN: a}, sign_with: a}", "limits.signing: keys: the id of key 1 must be"),
        ("{keys: {PLAIN: }, sign_with: a}", "limits.signing: keys: the id of key 1 must be"),
        ("{keys: {a: '${SECRET}'}, sign_with: PLAIN}", "limits.signing: sign_with: must be the id"),
    ],
)
def test_wrong_keys_of_signatures_are_refused_and_no_secret_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signing: str, says: str
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    file = tmp_path / "settings.yaml"
    file.write_text(GOOD + f"limits: {{signing: {signing.replace('PLAIN', SECRET)}}}\n")
    with pytest.raises(ConfigError) as raised:
        load_settings(file)
    assert str(raised.value).startswith(f"{file}: {says}")
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_secrets_of_signatures_are_neither_printed_nor_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    file = tmp_path / "settings.yaml"
    file.write_text(GOOD + "limits: {signing: {keys: {a: '${SECRET}'}, sign_with: a}}\n")
    settings = load_settings(file)
    assert settings.limits.signing.secrets() == {"a": SECRET}
    shown = [repr(settings), str(settings), settings.model_dump(mode="json"), settings.model_dump()]
    spec = QuotaSpec(settings)
    recorded = recorded_settings(settings)
    assert SECRET not in f"{shown} {recorded} {spec.in_words()}"
    # A replay parses what was recorded, and needs no keys.
    assert "signing" not in recorded["limits"]
    assert changed_settings(recorded, {}).limits.signing is None
    assert "signs limits with the key a" in spec.in_words()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("x: 1 # " + "x" * (1 << 20), "has more than 1048576 bytes: no settings file"),
        ("x: [" + "a," * 60_000 + "]", "line 4: more than 50000 keys and values"),
        ("x: " + "[" * 100_000, "line 4: nested too deeply: more than 32 levels"),
        ("x:\n" + "- " * 100_000, "nested too deeply: more than 32 levels"),
        ("x: 1" + ":59" * 40, "line 4: a number or time of more than 100 characters"),
        ("x: 0x" + "f" * 200, "line 4: a number or time of more than 100 characters"),
        ("a: &a {b: *a}", "line 4: contains itself"),
        ("a: !!int ''", "line 4: the tag !!int can't be used here"),
        ("a: !!timestamp x", "line 4: the tag !!timestamp can't be used here"),
    ],
)
def test_a_file_that_costs_too_much_is_refused(tmp_path: Path, more: str, says: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(GOOD + more)
    with pytest.raises(ConfigError) as raised:
        load_settings(file)
    assert says in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("reference", ["[{}]", "{{<<: [{}]}}", "[[{}], {{a: [{}]}}]"])
def test_aliases_of_aliases_are_refused(tmp_path: Path, reference: str) -> None:
    lines = ["x0: &x0 {a: 1}"]
    for n in range(1, 20):
        nine = ", ".join([f"*x{n - 1}"] * 9)
        lines.append(f"x{n}: &x{n} " + reference.format(nine, nine))
    file = tmp_path / "settings.yaml"
    file.write_text(GOOD + "\n".join(lines))
    with pytest.raises(ConfigError, match=r"with aliases .* written out, there are more than"):
        load_settings(file)


def test_an_alias_may_be_used(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        GOOD + "balance: {policies: {isolation: [&a {namespaces: [x], primary: [b]}, *a]}}"
    )
    first, second = load_settings(file).balance.policies["isolation"]
    assert first == second == {"namespaces": ["x"], "primary": ["b"]}
