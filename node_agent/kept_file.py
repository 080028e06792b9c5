"""One small JSON file that a probe keeps over restarts, replaced as a whole: a crash leaves the old or the new one."""

import logging
import os
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

_LOG: Final = logging.getLogger(__name__)
_BYTES_MAX: Final = 1024 * 1024

T = TypeVar("T")


def read_kept(path: Path, form: type[T]) -> T | None:
    """Return what was kept; None where nothing was, or it can't be read, which the log then tells."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_BYTES_MAX), type=form)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        _LOG.warning("kept file is unusable, starting anew", extra={"path": str(path), "problem": str(error)})
        return None


def write_kept(path: Path, kept: Any) -> bool:
    """Write it; False where that failed, which the log then tells: a full disk must not blind a probe."""
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        _LOG.warning("not kept: a restart may forget it", extra={"path": str(path), "problem": str(error)})
        return False
    return True
