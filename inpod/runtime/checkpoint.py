"""Checkpoint requests: ``/outrider/ckpt.request`` asks, ``/outrider/ckpt.done.RANK`` answers, each id once.

The node agent puts the request into every pod of the job. A rank never interrupts the script: it answers at its own
step boundaries, with what the script saved itself, or with what the function of ``register_checkpoint`` did.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REQUEST_FILE = "ckpt.request"
DONE_PREFIX = "ckpt.done."
SAVED = "saved"
NO_WRITER = "no-writer"
EXPIRED = "expired"
_MAX_BYTES = 65536  # a request has three short fields
_MAX_PATH = 4096


class BadRequest(ValueError):
    """The request file does not hold a request; the message names the field."""


class Request:
    """One request: id, and the time after which an answer is worthless (seconds since 1970)."""

    def __init__(self, identifier: str, deadline_unix: float) -> None:
        self.id = identifier
        self.deadline_unix = deadline_unix


def parse(raw: bytes) -> Request:
    """Return the request in the file's content. Raises BadRequest."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{REQUEST_FILE}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadRequest(f"{REQUEST_FILE}: not an object")
    identifier, deadline = content.get("id"), content.get("deadline_unix")
    if not isinstance(identifier, str) or not identifier:
        raise BadRequest(f"{REQUEST_FILE}: id is not a text")
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)):
        raise BadRequest(f"{REQUEST_FILE}: deadline_unix is not a number")
    return Request(identifier, float(deadline))


def decide(request: Request, now: float, *, saved: bool, writer: bool) -> str | None:
    """Return the answer that is due, None while this rank should wait for the script's own next save."""
    if saved:
        return SAVED
    if now >= request.deadline_unix:
        return EXPIRED
    return None if writer else NO_WRITER


class Mailbox:
    """The two files of one rank."""

    def __init__(self, directory: str, rank: int) -> None:
        self._directory = directory
        self._request_path = os.path.join(directory, REQUEST_FILE)
        self._rank = rank
        self._seen: tuple[int, int, int] | None = None
        self.open: Request | None = None

    def look(self) -> None:
        """Refresh ``open``: one stat, and a read only where the file changed. Raises BadRequest, once per content."""
        try:
            found = os.stat(self._request_path)
        except OSError:
            self._seen = self.open = None
            return
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if version == self._seen:
            return
        self._seen, self.open = version, None
        with open(self._request_path, "rb") as file:
            request = parse(file.read(_MAX_BYTES))
        if self._answered() != request.id:
            self.open = request

    def answer(self, state: str, step: int, checkpoint_step: int, path: str) -> None:
        """Write the answer to the open request durably and close it. Raises OSError."""
        if self.open is None:
            return
        done = {
            "id": self.open.id,
            "rank": self._rank,
            "step": step,
            "state": state,
            "checkpoint_step": checkpoint_step,
            "path": os.fsencode(path[:_MAX_PATH]).decode("utf-8", "replace"),
        }
        self._write(json.dumps(done).encode())
        self.open = None

    def _done_path(self) -> str:
        return os.path.join(self._directory, f"{DONE_PREFIX}{self._rank}")

    def _answered(self) -> Any:
        """Return the id answered last, also by an earlier process of this rank."""
        try:
            with open(self._done_path(), "rb") as file:
                done = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return done.get("id") if isinstance(done, dict) else None

    def _write(self, content: bytes) -> None:
        temporary = os.path.join(self._directory, f".{DONE_PREFIX}{self._rank}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, self._done_path())
        _sync_folder(self._directory)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
