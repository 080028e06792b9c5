"""How each of the plugin's two processes notices that the other has stopped, is stuck, or runs in circles."""

from typing import Final

TICK_SECONDS: Final = 1.0  # how often each process says that it is there, and counts that it has not heard the other


class Silence:
    """Counts this process's own ticks since the other was last heard; ``over`` from ``limit`` of them on.

    Ticks, not a clock: a process that was stopped itself, with or without the other, has ticked once when it goes on,
    and reads what was said meanwhile before it ticks again.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._ticks = limit, 0

    @property
    def over(self) -> bool:
        """True once the other has been silent for too long."""
        return self._ticks >= self._limit

    def heard(self) -> bool:
        """Take that the other is there. Returns whether that ends a silence that was too long."""
        ended, self._ticks = self.over, 0
        return ended

    def tick(self) -> bool:
        """Count a tick. Returns whether the silence is too long from this one on."""
        self._ticks += 1
        return self._ticks == self._limit
