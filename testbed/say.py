"""Progress lines: what is being done and how long it took."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
"""Takes one line for the person who waits."""

_REMINDER_S = 15.0


def to_stderr(line: str) -> None:
    """Print a progress line where it does not mix with a command's output."""
    print(line, file=sys.stderr, flush=True)


def silent(_line: str) -> None:
    """Say nothing; for tests."""


@contextmanager
def step(say: Say, what: str, label: str = "done") -> Iterator[None]:
    """Say what begins, remind every 15 s, and say how long it took in seconds."""
    begin = time.monotonic()
    ended = threading.Event()

    def remind() -> None:
        while not ended.wait(_REMINDER_S):
            say(f"{what}: still running after {time.monotonic() - begin:.0f} s")

    say(f"{what} ...")
    threading.Thread(target=remind, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
    say(f"{what}: {label} in {time.monotonic() - begin:.1f} s")
