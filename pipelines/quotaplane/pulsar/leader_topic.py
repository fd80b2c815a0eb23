"""A topic by which programs elect a leader: only one of them can produce to it.

Pulsar gives exclusive access to one producer; another program may take it away
(``ExclusiveWithFencing``), after which the first one's messages are refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pulsar

from quotaplane.pulsar.client import as_transport_error, close_quietly, open_client
from quotaplane.settings import PulsarConnection

_PROGRAM: Final = "program"
_GOODBYE: Final = "leaves"
_SEND_WITHIN_MS: Final = 2000
_READ_WITHIN_MS: Final = 1000
_PREFETCHED: Final = 16
"""Beats are small; a foreign message may have 5 MB."""
_MOST_BEATS: Final = 100
"""Beats read at once; only the newest counts."""
_TAKEN: Final = (pulsar.exceptions.ProducerFenced, pulsar.exceptions.ProducerBusy)
_MAX_NAME: Final = 300


class Beat(NamedTuple):
    """A message of the program that has the access, as others see it."""

    program: str
    """Its name, and where it runs."""
    leaves: bool
    """It gave the access back, and does not use it any more."""


class LeaderTopic:
    """The topic as one program uses it; every method may block for seconds.

    Args:
        place: the cluster.
        topic: its full name; persistent, as Pulsar has no exclusive access to others.
        program: says to others which program this is, and where it runs.
    """

    def __init__(self, place: PulsarConnection, topic: str, program: str) -> None:
        self._place, self._topic, self._program = place, topic, program
        self._client = open_client(place)
        self._producer: pulsar.Producer | None = None
        self._reader: pulsar.Reader | None = None

    def received(self) -> Beat | None:
        """The newest beat since the last call; the first call: the newest of all.

        Raises:
            TransportError: the topic can't be read.
        """
        with as_transport_error(self._place, f"topic {self._topic!r}"):
            if self._reader is None:
                self._reader = self._client.create_reader(
                    self._topic,
                    pulsar.MessageId.latest,
                    receiver_queue_size=_PREFETCHED,
                    start_message_id_inclusive=True,
                )
            newest = None
            for _ in range(_MOST_BEATS):
                if not self._reader.has_message_available():
                    break
                newest = self._reader.read_next(_READ_WITHIN_MS)
        if newest is None:
            return None
        properties = newest.properties()
        program = str(properties.get(_PROGRAM, "of unknown name"))[:_MAX_NAME]
        printable = "".join(letter if letter.isprintable() else "?" for letter in program)
        return Beat(printable, leaves=_GOODBYE in properties)

    def acquire(self, *, fence: bool) -> bool:
        """Get the exclusive access; False: another program has it. ``fence``: take it away.

        Raises:
            TransportError: the cluster does not answer, or refuses.
        """
        modes = pulsar.ProducerAccessMode
        self._drop_producer()
        with as_transport_error(self._place, f"topic {self._topic!r}"):
            try:
                self._producer = self._client.create_producer(
                    self._topic,
                    send_timeout_millis=_SEND_WITHIN_MS,
                    access_mode=modes.ExclusiveWithFencing if fence else modes.Exclusive,
                )
            except _TAKEN:
                return False
        return True

    def beat(self, *, leaves: bool = False) -> bool:
        """Show others that this program has the access; False: it has lost it.

        Raises:
            TransportError: the cluster does not answer: the access may be lost, or not.
        """
        if self._producer is None:
            return False
        properties = {_PROGRAM: self._program, **({_GOODBYE: "1"} if leaves else {})}
        with as_transport_error(self._place, f"topic {self._topic!r}"):
            try:
                self._producer.send(b"", properties=properties)
            except (*_TAKEN, pulsar.exceptions.AlreadyClosed):
                self._drop_producer()
                return False
        return True

    def close(self) -> None:
        """Give up the access and the connection."""
        self._producer = self._reader = None
        close_quietly(self._client)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with as_transport_error(self._place, f"topic {self._topic!r}"):
                try:
                    producer.close()
                except pulsar.exceptions.AlreadyClosed:
                    return
