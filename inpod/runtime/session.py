"""One training rank: counts its steps, knows its saves, answers checkpoint requests.

A step is one finished ``step()`` of the first optimizer that stepped in this process: with gradient accumulation that
is one per accumulated batch, with several optimizers (GAN, RL) the others are not counted. Optimizers that keep their
own count in their state (the Adam family) carry it through a checkpoint, so the number goes on after a restart; with
others (plain SGD) it starts at 1 in each process.
"""

from __future__ import annotations

import os
import time
import weakref

from .beacon import NO_CHECKPOINT, Beacon, remove_stale
from .checkpoint import BadRequest, Mailbox, decide
from .faults import note
from .registry import offered
from .saves import Save, target_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOOK_SECONDS = 0.05  # at most one stat of the request file in this time
_MAX_STEP = 2**53


class Session:
    """State of this process. ``wall`` gives seconds since 1970, ``monotonic`` seconds."""

    def __init__(
        self,
        directory: str,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._wall = wall
        self._monotonic = monotonic
        self._optimizer: Callable[[], Any] = lambda: None
        self._beacon: Beacon | None = None
        self._mailbox: Mailbox | None = None
        self._pid = os.getpid()
        self._step = 0
        self._last_unix = 0.0
        self._next_look = 0.0
        self._writer = False
        self._fresh: Save | None = None  # finished, but the script may still rename it
        self._checkpoint_step = NO_CHECKPOINT
        self._checkpoint_path = ""
        self._tried = ""  # id of the request that the registered function was last called for

    def on_step(self, optimizer: Any) -> None:
        """Take note of a finished optimizer step."""
        if self._optimizer() is not optimizer and not self._adopt(optimizer):
            return
        self._step += 1
        now = self._wall()
        seconds = max(0.0, now - self._last_unix) if self._last_unix else 0.0
        self._last_unix = now
        saved = self._fresh is not None
        if saved:
            self._settle()
        if self._beacon is not None:
            self._beacon.write(self._step, now, seconds, self._checkpoint_step)
        if saved or self._monotonic() >= self._next_look:
            self._attend(now, saved)

    def before_save(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Save | None:
        """Note that ``torch.save`` begins; None where it does not write a file of its own."""
        if os.getpid() != self._pid:
            return None  # a forked helper: its steps are not ours
        path = target_path(args, kwargs)
        return None if path is None else Save(path, self._step)

    def after_save(self, save: Save | None) -> None:
        """Note that it returned. The save counts from the next step on, when a rename has happened too."""
        if save is not None and save.finished():
            self._writer = True
            self._fresh = save

    def _adopt(self, optimizer: Any) -> bool:
        """Follow this optimizer if none is followed (any more). False where it is not the one to count."""
        if self._optimizer() is not None:
            return False
        self._optimizer = weakref.ref(optimizer)
        counted = _own_count(optimizer)
        self._step = max(self._step, counted - 1)
        if self._beacon is None:
            self._open(resumable=counted > 0)
        return True

    def _open(self, *, resumable: bool) -> None:
        # RANK is torchrun's, or the script's own: by the first step it is final.
        rank = int(os.environ["RANK"])
        first = rank - int(os.environ.get("LOCAL_RANK", "0"))
        remove_stale(self._directory, range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
        self._pid = os.getpid()
        self._beacon = Beacon(self._directory, rank)
        self._mailbox = Mailbox(self._directory, rank)
        before = self._beacon.last_checkpoint_step
        self._writer = self._writer or before != NO_CHECKPOINT
        if resumable:  # else the numbers of the earlier process mean other steps
            self._checkpoint_step = before

    def _settle(self) -> None:
        if self._fresh is not None:
            self._checkpoint_step = self._fresh.step
            self._checkpoint_path = self._fresh.final_path()
        self._fresh = None

    def _attend(self, now: float, saved: bool) -> None:
        self._next_look = self._monotonic() + LOOK_SECONDS
        mailbox = self._mailbox
        if mailbox is None:
            return
        try:
            mailbox.look()
        except BadRequest as error:
            note(self._directory, "request", error)
        if mailbox.open is None:
            return
        saved = saved or (now < mailbox.open.deadline_unix and self._save_now(mailbox.open.id))
        state = decide(mailbox.open, now, saved=saved, writer=self._writer)
        if state is not None:
            mailbox.answer(state, self._step, self._checkpoint_step, self._checkpoint_path)

    def _save_now(self, request_id: str) -> bool:
        """Call the script's registered function, once for each request. False where there is none, or it failed."""
        save = offered()
        if save is None or request_id == self._tried:
            return False
        self._tried = request_id
        try:
            result = save()
        except Exception as error:  # noqa: BLE001 - the user's function: training goes on without this checkpoint
            note(self._directory, "register_checkpoint", error)
            return False
        self._settle()
        self._checkpoint_step = self._step
        self._checkpoint_path = os.fspath(result) if isinstance(result, (str, os.PathLike)) else self._checkpoint_path
        return True


def _own_count(optimizer: Any) -> int:
    """Return how many steps the optimizer's state says it has done, 0 where it does not say.

    Reads one value of one parameter, once per process: with a fused optimizer that waits for the GPU this one time.
    """
    state = getattr(optimizer, "state", None)
    for values in state.values() if isinstance(state, dict) else ():
        step = values.get("step") if isinstance(values, dict) else None
        count = 0 if step is None else int(step)
        return count if 0 < count <= _MAX_STEP else 0
    return 0
