"""A local, always fresh copy of the objects of one kind: list, then watch, for ever."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Generic

from outrider.kube.client import Client, Selector
from outrider.kube.kinds import Kind, T


class Informer(Generic[T]):
    """Skeleton."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        selector: Selector = Selector(),  # noqa: B008 - immutable
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.synced = asyncio.Event()
        self.items: Mapping[str, T] = {}
        raise NotImplementedError(client, kind, selector, clock)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled."""
        raise NotImplementedError

    def get(self, key: str) -> T | None:
        """Return one object."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[T | None, T | None], None]) -> None:
        """Call ``callback(old, new)`` after each change."""
        raise NotImplementedError

    @property
    def staleness_seconds(self) -> float:
        """Seconds since the API server was last heard."""
        raise NotImplementedError
