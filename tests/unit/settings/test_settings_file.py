"""A settings file that is wrong is refused in one line that names the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from quotaplane.errors import ConfigError
from quotaplane.replay.player import changed_settings
from quotaplane.settings import Settings, load_settings
from quotaplane.streams.quota.job import QuotaSpec, recorded_settings

Load = Callable[[str], Settings]
Refused = Callable[[str], str]
SECRET = "s3cr3t-of-signatures-0123456789abcdef"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a settings file with this text; ``SECRET`` is in the environment."""
    monkeypatch.setenv("SECRET", SECRET)

    def load(text: str) -> Settings:
        file = tmp_path / "settings.yaml"
        file.write_text(text)
        return load_settings(file)

    return load


@pytest.fixture
def refused(load: Load, tmp_path: Path) -> Refused:
    """The line that refuses the text of a settings file, behind the file's name."""

    def refused(text: str) -> str:
        with pytest.raises(ConfigError) as raised:
            load(text)
        said = str(raised.value)
        assert "\n" not in said
        return said.removeprefix(f"{tmp_path}/settings.yaml: ")

    return refused


GOOD = """\
transport: {kind: delta, path: topics}
history: {path: history}
checkpoint: checkpoint
"""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("server: {port: 1}\nserver: {port: 2}\n", "line 5: server: the key occurs twice"),
        ("server: {host: a, host: b}\n", "line 4: host: the key occurs twice"),
        ("server: {prot: 1}\n", "server.prot: unknown key"),
        ("limits: [\n", "line 5: not YAML"),
        ("1: 2\n", "line 4: the key 1 must be text"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(refused: Refused, more: str, says: str) -> None:
    assert refused(GOOD + more).startswith(says)


@pytest.mark.parametrize("text", ["", "a text\n", "- a", "[]", "- history: {path: h}\n"])
def test_a_file_must_be_a_mapping(refused: Refused, text: str) -> None:
    assert "expected a mapping of settings at the top" in refused(text)


@pytest.mark.parametrize(
    ("signing", "says"),
    [
        ("{}", "limits.signing.keys: is required (and 1 more)"),
        ("{keys: {a: '${SECRET}'}}", "limits.signing.sign_with: is required"),
        ("{keys: {a: '${UNSET}'}, sign_with: a}", "limits.signing.keys.a: the environment varia"),
        ("{keys: {a: short}, sign_with: a}", "limits.signing: keys.a: must have at least 32"),
        ("{keys: {}, sign_with: a}", "limits.signing: keys: there must be at least one"),
        ("{keys: {a: '${SECRET}', b: '${SECRET}'}, sign_with: a}", "limits.signing: keys.b: is "),
        ("{keys: {a: 5}, sign_with: a}", "limits.signing.keys.a: must be a string, not a number"),
        ("{keys: '${SECRET}', sign_with: a}", "limits.signing.keys: must be an object"),
        ("'${SECRET}'", "limits.signing: must be an object, not a string"),
        ("{keys: {PLAIN: a}, sign_with: a}", "limits.signing: keys: the id of key 1 must be"),
        ("{keys: {a: '${SECRET}'}, sign_with: PLAIN}", "limits.signing: sign_with: must be the id"),
    ],
)
def test_wrong_keys_of_signatures_are_refused_and_no_secret_is_printed(
    refused: Refused, signing: str, says: str
) -> None:
    said = refused(GOOD + f"limits: {{signing: {signing.replace('PLAIN', SECRET)}}}\n")
    assert said.startswith(says)
    assert SECRET not in said


def test_secrets_of_signatures_are_neither_printed_nor_recorded(load: Load) -> None:
    settings = load(GOOD + "limits: {signing: {keys: {a: '${SECRET}'}, sign_with: a}}\n")
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
    ],
)
def test_a_file_that_costs_too_much_is_refused(refused: Refused, more: str, says: str) -> None:
    said = refused(GOOD + more)
    assert says in said
    assert len(said) < 200


@pytest.mark.parametrize("reference", ["[{}]", "{{<<: [{}]}}", "[[{}], {{a: [{}]}}]"])
def test_aliases_of_aliases_are_refused(refused: Refused, reference: str) -> None:
    lines = ["x0: &x0 {a: 1}"]
    for n in range(1, 20):
        nine = ", ".join([f"*x{n - 1}"] * 9)
        lines.append(f"x{n}: &x{n} " + reference.format(nine, nine))
    said = refused(GOOD + "\n".join(lines))
    assert re.search(r"with aliases .* written out, there are more than", said)


def test_an_alias_may_be_used(load: Load) -> None:
    policies = "{isolation: [&a {namespaces: [x], primary: [b]}, *a]}"
    settings = load(GOOD + f"balance: {{policies: {policies}}}")
    first, second = settings.balance.policies["isolation"]
    assert first == second == {"namespaces": ["x"], "primary": ["b"]}
