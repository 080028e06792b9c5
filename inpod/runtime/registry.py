"""The save function that a script may offer."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, whose import costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_offered: list[Callable[[], Any]] = []


def register_checkpoint(save: Callable[[], Any]) -> None:
    """Have ``save()`` called when Outrider asks for a checkpoint, right after an optimizer step of this rank.

    It must have stored the checkpoint durably when it returns, and may return its path. Ranks learn of a request at
    different steps, so it must not use collectives: offer it on the rank that holds the whole state (rank 0 of a
    data-parallel job). A later call replaces the earlier one. An exception from it is written to
    ``/outrider/inpod.error`` and training goes on.
    """
    _offered[:] = [save]


def offered() -> Callable[[], Any] | None:
    """Return the registered function, if any."""
    return _offered[0] if _offered else None
