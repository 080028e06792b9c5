"""Lines of one event are printed within milliseconds: tells a further line of it from a second event."""

from collections import OrderedDict
from typing import Final

_JOIN_SECONDS: Final = 2.0
_EVENTS_MAX: Final = 1024


class Recent:
    """Remembers when what was last seen."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, float] = OrderedDict()

    def note(self, what: str, now: float) -> None:
        """Remember that this was seen."""
        self._times.pop(what, None)
        self._times[what] = now
        if len(self._times) > _EVENTS_MAX:
            self._times.popitem(last=False)

    def take(self, what: str, now: float) -> bool:
        """Return whether this was noted a moment ago, and forget it."""
        before = self._times.pop(what, None)
        return before is not None and abs(now - before) <= _JOIN_SECONDS
