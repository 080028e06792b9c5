"""When each node's agent was last there, whatever the clocks of its node and of this one say. Pure.

A GPUNode's ``status.observedAt`` is the time of another machine. Where that agrees with ours it counts. Where it does
not, it still shows a living agent by changing: then the moment counts at which we heard of it.
"""

import math
from collections.abc import Collection

import msgspec

from outrider.api.times import parse_rfc3339


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """``told`` is the agent's own time, as written; ``heard`` when we heard it, ``at`` the time that counts.

    Both are in seconds since 1970 by our clock.
    """

    told: str
    heard: float
    at: float


class Sightings:
    """Of each node the last. An agent is silent once ``stale_seconds`` have passed since the time that counts."""

    def __init__(self, stale_seconds: float) -> None:
        self._stale_seconds = stale_seconds
        self._known: dict[str, Sighting] = {}

    def note(self, name: str, told: str, now: float) -> None:
        """Take what a GPUNode says at ``now`` (seconds since 1970). The same again is no sign of life."""
        known = self._known.get(name)
        if known is None or known.told != told:
            self._known[name] = Sighting(told, now, self._time(known, told, now))

    def _time(self, known: Sighting | None, told: str, now: float) -> float:
        try:
            observed = parse_rfc3339(told)
        except ValueError:
            return -math.inf  # never observed, or a time that is no time
        if now - self._stale_seconds <= observed <= now:
            return observed
        lively = known is not None and now - known.heard <= self._stale_seconds
        return now if lively else min(observed, now)

    def forget(self, name: str) -> None:
        """Take that a GPUNode is gone."""
        self._known.pop(name, None)

    def at(self, name: str) -> float:
        """Return when the node's agent was last there, in seconds since 1970; minus infinity for never."""
        known = self._known.get(name)
        return known.at if known is not None else -math.inf

    def shift(self, seconds: float) -> Collection[str]:
        """Take that our clock was set forward by that much, or back; return the nodes that this is about."""
        for name, one in self._known.items():
            self._known[name] = Sighting(one.told, one.heard + seconds, one.at + seconds)
        return self._known.keys()
