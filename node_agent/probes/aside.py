"""Blocking readings beside the event loop: files of a stuck file system or of hung firmware can block for ever.

Threads of their own, not the loop's pool: a reading that never returns neither fills the pool nor holds up the end of
the process.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class StillReading(Exception):
    """The reading before has not returned yet."""


class Aside(Generic[T]):
    """Runs one blocking function at a time in a thread."""

    def __init__(self) -> None:
        self._running: asyncio.Future[T] | None = None

    async def run(self, look: Callable[[], T]) -> T:
        """Return what ``look`` returns, raise what it raises. Raises StillReading while an earlier call hangs."""
        if self._running is not None and not self._running.done():
            raise StillReading("the reading before has not returned: the kernel, a disk or an adapter hangs")
        loop = asyncio.get_running_loop()
        self._running = loop.create_future()
        self._running.add_done_callback(_look_at)
        threading.Thread(target=_work, args=(look, self._running, loop), daemon=True).start()
        return await asyncio.shield(self._running)


def _look_at(answer: asyncio.Future[T]) -> None:
    """Count an error as seen that comes when the reader has given up: it is in the report as a lack of answer."""
    if not answer.cancelled():
        answer.exception()


def _work(look: Callable[[], T], answer: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = look()
    except Exception as error:  # noqa: BLE001 - handed over to the reader, whatever it is
        _hand_over(loop, answer.set_exception, error)
    else:
        _hand_over(loop, answer.set_result, result)


def _hand_over(loop: asyncio.AbstractEventLoop, setter: Callable[[T], None], value: T) -> None:
    try:
        loop.call_soon_threadsafe(setter, value)
    except RuntimeError:  # the loop ended meanwhile: nobody waits any more
        return
