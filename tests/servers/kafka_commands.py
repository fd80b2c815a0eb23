"""Runs Kafka's own commands, as docs/operate/kafka.md writes them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.servers.jvm import SHORT_LIVED
from tests.servers.kafka_server import KafkaServer, kafka_jars
from tests.servers.tools import fetched_once, ivy_retrieve, java

_JARS: Final = Path(__file__).parents[2] / "deploy" / "kafka-tools-jars.xml"
_CLASSES: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}


def run_kafka(server: KafkaServer, words: Sequence[str]) -> str:
    """Run a command, which has HOST:9092 for the server's plain listener; returns what it prints.

    Raises:
        RuntimeError: it failed; has what it printed.
    """
    jars = fetched_once(
        "kafka-tools", _JARS, lambda to: ivy_retrieve(_JARS, ["jar"], f"{to}/[artifact].[ext]")
    )
    script, *options = words
    options = [server.bootstrap_servers if word == "HOST:9092" else word for word in options]
    command = [java(), "-Xmx128m", *SHORT_LIVED.split(), "-cp", f"{jars}/*:{kafka_jars()}/*"]
    done = subprocess.run(
        [*command, _CLASSES[script], *options], capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")
    return done.stdout
