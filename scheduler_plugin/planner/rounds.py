"""How many of the gangs that wait are looked at again, so that looking takes no more than half of the time. Pure.

To find that a gang still does not fit, and why, takes a look at every node; thousands of gangs that are all looked at
whenever a node becomes free would keep the last of them from ever being looked at. So there are rounds of the first
gang, the first two, four, eight and so on: each of them begins only once a multiple of what it takes has passed since
all its gangs were last looked at. A round takes its gangs in the order of the queue, so nobody passes by it.
"""

import itertools
from collections.abc import Sequence
from typing import Final

_BUSY_PARTS: Final = 2  # of all time, one part may go into rounds


class Rounds:
    """When each round last began. Times in seconds, of any one clock."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}  # by the round's number: 2 to that power are its gangs

    def due(self, took: Sequence[float], now: float) -> tuple[int, float]:
        """Return how many gangs of the queue's head are to be looked at now, and after how long the others may be.

        ``took`` are the seconds that the last look at each took, in the order of the queue. The longest round that is
        due begins thereby.
        """
        rounds = max(len(took) - 1, 0).bit_length() + 1
        spent = [0.0, *itertools.accumulate(took)]
        later = 0.0
        for number in reversed(range(rounds)):
            gangs = min(1 << number, len(took))
            pause = _BUSY_PARTS * rounds * spent[gangs]
            since = now - self._began.get(number, float("-inf"))
            if not 0 <= since < pause:
                self._began.update(dict.fromkeys(range(number + 1), now))
                return gangs, later
            later = pause - since
        return 0, later
