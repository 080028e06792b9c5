"""File locks, held until the process ends however it ends, so that a kill -9 leaves none behind."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import BusyError


@contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Hold the lock at path, waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at path for `what`, or refuse at once.

    Raises:
        BusyError: another process holds it; the message names its process id.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            message = f"{what}: another command works on it (process {holder}); wait for it or end it"
            raise BusyError(message) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
