"""A local, always fresh copy of the objects of one kind: list once, then watch, for ever."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, Generic

from outrider.kube.backoff import delay_seconds
from outrider.kube.client import EVERYTHING, Client, EventType, Page, Selector, WatchEvent
from outrider.kube.errors import Gone, KubeError, NotFound
from outrider.kube.kinds import Kind, T
from outrider.kube.metrics import RELISTS, STREAM_ENDS

_LOG: Final = logging.getLogger(__name__)
_BACKOFF_BASE_SECONDS: Final = 0.5
_BACKOFF_CAP_SECONDS: Final = 10.0  # how late an outage's end may be noticed
_AT_ONCE: Final = 100  # objects of a list that are taken in one go: some milliseconds
_STEADY_SECONDS: Final = 10.0  # a stream that lived this long was no failure, however it ended


class Informer(Generic[T]):
    """Objects by key ("namespace/name", or "name" where cluster-scoped), kept fresh by ``run``.

    An object that does not decode is not in ``items`` (an older version of it is dropped); ``invalid`` says why.
    While the API server can't be reached, or no longer knows the kind, the last copy stays; ``staleness_seconds``
    tells how old it may be, and ``problem`` what is wrong, None while nothing is.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        selector: Selector = EVERYTHING,
        *,
        clock: Callable[[], float] = time.monotonic,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self.synced = asyncio.Event()
        self.problem: KubeError | None = None
        self._client = client
        self._kind = kind
        self._selector = selector
        self._clock = clock
        self._random_unit = random_unit
        self._items: dict[str, T] = {}
        self._invalid: dict[str, str] = {}
        self._callbacks: list[Callable[[T | None, T | None], None]] = []
        self._version = ""  # where the next watch starts; empty: list first
        self._heard = clock()
        self._failures = 0

    @property
    def items(self) -> Mapping[str, T]:
        """All objects, as far as they are known. Empty before ``synced``."""
        return self._items

    @property
    def invalid(self) -> Mapping[str, str]:
        """Key of each object that does not decode, and what is wrong with which field."""
        return self._invalid

    @property
    def resource(self) -> str:
        """The kind's plural name, as in the API server's paths."""
        return self._kind.plural

    @property
    def staleness_seconds(self) -> float:
        """Seconds since the API server was last heard. Up to about 60 on a quiet healthy stream (bookmarks)."""
        return self._clock() - self._heard

    def get(self, key: str) -> T | None:
        """Return one object by its key."""
        return self._items.get(key)

    def subscribe(self, callback: Callable[[T | None, T | None], None]) -> None:
        """Call ``callback(old, new)`` at each change; at once with (None, object) for what is there already.

        None stands for absent. The callback runs between two awaits of ``run``: it must be quick and not raise.
        """
        self._callbacks.append(callback)
        for item in self._items.values():
            callback(None, item)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled. No failure of the API server ends it."""
        while True:
            began = self._clock()
            try:
                await self._follow()
            except Gone:
                self._version = ""
                _LOG.info("history lost, listing again", extra={"resource": self._kind.plural})
            except KubeError as error:
                STREAM_ENDS.labels(self._kind.plural).inc()
                self._tell(error)
            await asyncio.sleep(self._pause_seconds(lived=self._clock() - began))

    def _tell(self, error: KubeError) -> None:
        """Log a failure; one that goes on is news only once."""
        details = {"resource": self._kind.plural, "problem": str(error), "failures": self._failures + 1}
        level = logging.DEBUG if str(self.problem) == str(error) else logging.WARNING
        absent = isinstance(error, NotFound)
        _LOG.log(
            level, "kind not installed, will look again" if absent else "stream broken, will resume", extra=details
        )
        self.problem = error

    def _hear(self) -> None:
        self._heard, self.problem = self._clock(), None

    def _pause_seconds(self, lived: float) -> float:
        if lived >= _STEADY_SECONDS:
            self._failures = 0
            return 0.0
        self._failures += 1
        return delay_seconds(
            self._failures, base=_BACKOFF_BASE_SECONDS, cap=_BACKOFF_CAP_SECONDS, unit=self._random_unit()
        )

    async def _follow(self) -> None:
        """List where nothing is known yet, then apply one stream of changes to its end."""
        if not self._version:
            await self._replace_all(await self._client.list(self._kind, self._selector))
        async with aclosing(self._client.watch(self._kind, self._version, self._selector)) as stream:
            async for event in stream:
                self._hear()
                self._apply(event)

    async def _replace_all(self, page: Page[T]) -> None:
        fresh = {item.metadata.key: item for item in page.items}
        gone = dict.fromkeys(self._items.keys() - fresh.keys())  # deleted while we were not watching
        for count, (key, item) in enumerate([*gone.items(), *fresh.items()]):
            self._set(key, item)
            if count % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # who shares the loop must not wait for a whole cluster
        self._invalid = dict(page.invalid)
        self._version = page.resource_version
        self._hear()
        self.synced.set()
        RELISTS.labels(self._kind.plural).inc()

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.metadata.name:
            key = event.metadata.key
            self._invalid.pop(key, None)
            if event.type is EventType.INVALID:
                self._invalid[key] = event.problem
            gone = event.type in (EventType.DELETED, EventType.INVALID)
            self._set(key, None if gone else event.object)
        self._version = event.metadata.resource_version or self._version

    def _set(self, key: str, new: T | None) -> None:
        old = self._items.get(key)
        if new is None:
            self._items.pop(key, None)
        else:
            self._items[key] = new
        if _version(old) != _version(new):
            for callback in self._callbacks:
                callback(old, new)


def _version(item: T | None) -> str | None:
    return None if item is None else f"{item.metadata.uid}/{item.metadata.resource_version}"
