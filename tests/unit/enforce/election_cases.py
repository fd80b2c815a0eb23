"""The topic of the leader election, in memory."""

from __future__ import annotations

from quotaplane.errors import TransportError
from quotaplane.pulsar.leader_topic import Beat


class ElectionRoom:
    """The topic of the election: who has the access, and all beats."""

    def __init__(self) -> None:
        self.owner: ElectionSeat | None = None
        self.tenures = 0
        """How often the access was given."""
        self.beats: list[Beat] = []

    def left(self, seat: ElectionSeat) -> None:
        """The connection of a program is closed."""
        if self.owner is seat:
            self.owner = None


class ElectionSeat:
    """One process's ``ElectionTopic``."""

    def __init__(self, room: ElectionRoom, name: str) -> None:
        self._room, self._name = room, name
        self._seen = max(len(room.beats) - 1, 0)
        self.tenure = 0
        """The number of the access that this process was given last."""
        self.is_cut_off = False
        """It reaches nothing; the cluster has not noticed, and it keeps its access."""

    def _check(self) -> None:
        if self.is_cut_off:
            raise TransportError("topic of the election: no answer")

    def received(self) -> Beat | None:
        """The newest beat since the last call."""
        self._check()
        new = self._room.beats[self._seen :]
        self._seen = len(self._room.beats)
        return new[-1] if new else None

    def acquire(self, *, fence: bool) -> bool:
        """Get the exclusive access."""
        self._check()
        if self._room.owner not in (None, self) and not fence:
            return False
        self._room.owner = self
        self._room.tenures += 1
        self.tenure = self._room.tenures
        return True

    def beat(self, *, leaves: bool = False) -> bool:
        """Show that this process has the access."""
        self._check()
        if self._room.owner is not self:
            return False
        self._room.beats.append(Beat(self._name, leaves))
        return True

    def close(self) -> None:
        """Give it up."""
        self._room.left(self)
