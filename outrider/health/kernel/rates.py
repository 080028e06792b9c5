"""Corrected errors matter by their rate: one is normal wear, many in a short time announce a failure."""

from collections import OrderedDict, deque
from typing import Final

import msgspec

_KEYS_MAX: Final = 1024  # devices watched at once; the one quiet for longest makes room


class Limit(msgspec.Struct, frozen=True):
    """So many events within so many seconds are too many."""

    events: int
    seconds: float


class Rates:
    """Counts the events of each device; holds as many times as the limit has events, and no more."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, device: str, now: float, events: int = 1) -> int:
        """Return how many events are news at ``now`` (seconds of any steady clock): 0 while the rate is low.

        The event that reaches the limit tells of all within the window, each one after it of itself.
        """
        times = self._times.setdefault(device, deque(maxlen=self._limit.events))
        self._times.move_to_end(device)
        if len(self._times) > _KEYS_MAX:
            self._times.popitem(last=False)
        was_high = self._high(times)
        times.extend([now] * min(events, self._limit.events))
        if not self._high(times):
            return 0
        return events if was_high else max(events, self._limit.events)

    def _high(self, times: deque[float]) -> bool:
        return len(times) == self._limit.events and abs(times[-1] - times[0]) <= self._limit.seconds
