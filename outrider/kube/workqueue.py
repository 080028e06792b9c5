"""Keys that wait for work: each at most once, never with two workers at the same time."""

import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Skeleton."""

    def __init__(self, *, random_unit: Callable[[], float] = random.random) -> None:
        raise NotImplementedError(random_unit)

    def add(self, key: K) -> None:
        """Ask for work on ``key``."""
        raise NotImplementedError(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for work on ``key`` later."""
        raise NotImplementedError(key, seconds)

    async def get(self) -> K:
        """Return the next key."""
        raise NotImplementedError

    def done(self, key: K) -> None:
        """End the work on ``key``."""
        raise NotImplementedError(key)

    def retry(self, key: K) -> None:
        """End failed work on ``key``."""
        raise NotImplementedError(key)
