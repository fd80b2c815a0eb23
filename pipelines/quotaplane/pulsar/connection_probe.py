"""Makes a broker check whether the connection of a producer still answers, and close it if not."""

from __future__ import annotations

from typing import Final

import pulsar

from quotaplane.pulsar.client import as_transport_error, close_quietly, open_client
from quotaplane.settings import PulsarConnection

_ANSWERS_WITHIN_S: Final = 15.0
"""A broker waits 5 s for the connection (``connectionLivenessCheckTimeoutMillis``)."""
_REFUSALS: Final = (
    pulsar.exceptions.ProducerBusy,
    # The rest: the broker refuses every producer like ours, before it looks at the other one.
    pulsar.exceptions.ProducerFenced,
    pulsar.exceptions.IncompatibleSchema,
    pulsar.exceptions.ProducerBlockedQuotaExceededError,
    pulsar.exceptions.ProducerBlockedQuotaExceededException,
    pulsar.exceptions.TopicTerminated,
    pulsar.exceptions.NotAllowedError,
)
"""The other connection answered, or can't be checked; a later try would find the same."""


class ConnectionProbe:
    """Asks for a producer that has the name of another one, on the same topic.

    The broker then sends a ping over the other's connection. If that answers, the broker refuses us
    and nothing else happens. If it does not answer, as the broker does not read from it, the broker
    closes it, and its client connects again.
    """

    def __init__(self, place: PulsarConnection) -> None:
        self._place = place
        self._client = open_client(place, answers_within_s=_ANSWERS_WITHIN_S)

    def closed(self, part: str, producer: str) -> bool:
        """Whether the broker closed the connection of a topic's producer; blocks for seconds.

        Raises:
            TransportError: the cluster does not answer, or refuses us for another reason.
        """
        with as_transport_error(self._place, f"topic {part!r}"):
            try:
                ours = self._client.create_producer(part, producer_name=producer)
            except _REFUSALS:
                return False
            # At once: the other one can't come back while its name is taken.
            ours.close()
        return True

    def close(self) -> None:
        """End all probes under way."""
        close_quietly(self._client)
