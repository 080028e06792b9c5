"""Counters as rates: how much they rose within a window, never how high they stand. Pure but for its own memory."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

_COUNTER_MAX: Final = 2**64 - 1
_STEPS: Final = 10  # parts of the window that are remembered apart

Steps = dict[str, list[tuple[float, float]]]
"""When each counter rose, in monotonic seconds, and by how much."""


def counter_of(text: str) -> int | None:
    """Return a counter; None for anything but a number that 64 bits hold."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        return None
    value = int(text)
    return value if value <= _COUNTER_MAX else None


class Rises:
    """Follows counters by key. Times are monotonic seconds."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._last: dict[str, tuple[float, int]] = {}
        self._steps: dict[str, deque[tuple[float, float]]] = {}

    @property
    def steps(self) -> Steps:
        """What a restart must not lose."""
        return {key: list(steps) for key, steps in self._steps.items() if steps}

    def restore(self, steps: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Take up what was kept in the same boot."""
        self._steps = {key: deque(kept, maxlen=_STEPS + 1) for key, kept in steps.items()}

    def note(self, key: str, value: int, now: float) -> float:
        """Take in a reading and return the rise within the window.

        The first reading is no rise, and one below the last says that the counter began anew. Of a rise over a gap
        that is longer than the window, only the window's share counts.
        """
        then, before = self._last.get(key, (now, value))
        self._last[key] = (now, value)
        steps = self._steps.setdefault(key, deque(maxlen=_STEPS + 1))
        if value > before:
            share = min(1.0, self._window_seconds / max(now - then, 1e-9))
            self._add(steps, (value - before) * share, now)
        while steps and now - steps[0][0] >= self._window_seconds:
            steps.popleft()
        return sum(rise for _, rise in steps)

    def _add(self, steps: deque[tuple[float, float]], rise: float, now: float) -> None:
        if steps and now - steps[-1][0] < self._window_seconds / _STEPS:
            since, so_far = steps.pop()
            steps.append((since, so_far + rise))
        else:
            steps.append((now, rise))
