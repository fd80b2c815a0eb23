"""A settings file that is wrong is refused in one line that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.errors import ConfigError
from quotaplane.settings import load_settings

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


@pytest.mark.parametrize("text", ["", "a text\n", "- a\n- b\n"])
def test_a_file_must_be_a_mapping(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="mapping"):
        load_settings(file)
