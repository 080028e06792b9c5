"""Waiting for the real API server: conditions with a deadline, never a fixed sleep."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


async def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    """Return once ``condition()`` is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells us when another process's state changes
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a coroutine beside the block; raises what ended it early, cancels it at the end."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
