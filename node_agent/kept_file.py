"""Files that the agent keeps over restarts: written whole or not at all, and one small JSON file for a probe."""

import logging
import os
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

_LOG: Final = logging.getLogger(__name__)
_BYTES_MAX: Final = 1024 * 1024
_CALM_SECONDS: Final = 60.0  # how late what is not urgent may be written

T = TypeVar("T")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file, so that a crash leaves the old or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


class KeptFile(Generic[T]):
    """Reads at the start, writes what changed. A full disk must not blind a probe: failures are logged."""

    def __init__(self, path: Path, form: type[T]) -> None:
        self._path, self._form = path, form
        self._written: tuple[bytes, Any] = (b"", None)
        self._written_at = self._failed_at = float("-inf")

    def read(self) -> T | None:
        """Return what was kept; None where nothing was, or it can't be read."""
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_BYTES_MAX), type=self._form)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            _LOG.warning("kept file is unusable", extra={"path": str(self._path), "problem": str(error)})
            return None

    def keep(self, kept: T, urgent: Any, monotonic: float) -> None:
        """Write ``kept`` where it changed: at once if ``urgent`` is another than last time, else within a minute.

        After a failure it is tried again a minute later.
        """
        if monotonic - self._failed_at < _CALM_SECONDS:
            return
        calm = urgent == self._written[1] and monotonic - self._written_at < _CALM_SECONDS
        content = b"" if calm else msgspec.json.encode(kept)
        if calm or (content, urgent) == self._written:
            return
        if self._write(content):
            self._written, self._written_at = (content, urgent), monotonic
        else:
            self._failed_at = monotonic

    def _write(self, content: bytes) -> bool:
        try:
            write_whole(self._path, content)
        except OSError as error:
            _LOG.warning("not kept over a restart", extra={"path": str(self._path), "problem": str(error)})
            return False
        return True
