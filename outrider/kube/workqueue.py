"""Keys that wait for work: each at most once, never with two workers at the same time."""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from outrider.kube.backoff import delay_seconds

K = TypeVar("K", bound=Hashable)

_BACKOFF_BASE_SECONDS: Final = 0.2
_BACKOFF_CAP_SECONDS: Final = 30.0


class WorkQueue(Generic[K]):
    """A queue of keys. A worker takes one by ``get`` and ends it by ``done`` or ``retry``.

    A key added while its work is going on is handed out again afterwards: the work may have read older state. Keys are
    handed out as they came, or, where ``order`` gives a key's turn when it is added, the lowest turn first.
    """

    def __init__(
        self, *, random_unit: Callable[[], float] = random.random, order: Callable[[K], Any] | None = None
    ) -> None:
        self._random_unit = random_unit
        self._order = order
        self._waiting: list[tuple[Any, int, K]] = []  # a heap: turn, then arrival
        self._arrivals = itertools.count()
        self._queued: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._available = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Ask for work on ``key`` now; a delayed request for it is thereby met."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            turn = self._order(key) if self._order else 0
            heapq.heappush(self._waiting, (turn, next(self._arrivals), key))
            self._available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for work on ``key`` in ``seconds``. Of several such requests the earliest counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def turns(self) -> Iterator[Any]:
        """Yield the turns of the keys that wait for a worker, in no order."""
        return (turn for turn, _, _ in self._waiting)

    async def get(self) -> K:
        """Wait for a key and take it. The taker calls ``done`` or ``retry`` with it in the end."""
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        _, _, key = heapq.heappop(self._waiting)
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """End successful work on ``key``: its failures are forgotten."""
        self._failures.pop(key, None)
        self._end(key)

    def retry(self, key: K) -> None:
        """End failed work on ``key`` and ask for it again, later with each failure in a row."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self._end(key)
        pause = delay_seconds(failures, base=_BACKOFF_BASE_SECONDS, cap=_BACKOFF_CAP_SECONDS, unit=self._random_unit())
        self.add_after(key, pause)

    def _end(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
