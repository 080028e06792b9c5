"""What counts as a finished save of the script: a file that ``torch.save`` changed."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Save:
    """A call of ``torch.save`` on a real file, begun when ``step`` steps were done."""

    def __init__(self, path: str, step: int) -> None:
        self.path = path
        self.step = step
        self._before = _version(path)
        self._after: tuple[int, int, int] | None = None

    def finished(self) -> bool:
        """Note the file as it is now; True where the call changed it.

        Compared with its own state before the call, not with this host's clock: shared filesystems stamp by theirs.
        """
        self._after = _version(self.path)
        return self._after is not None and self._after != self._before

    def final_path(self) -> str:
        """Return where the file is now: scripts write to a temporary name and rename it."""
        if self._after is None or _version(self.path) == self._after:
            return self.path
        folder = os.path.dirname(self.path) or "."
        try:
            with os.scandir(folder) as entries:
                moved = [entry.path for entry in entries if entry.inode() == self._after[0]]
        except OSError:
            return self.path
        return moved[0] if moved else self.path


def target_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the file that ``torch.save(obj, f)`` writes, None where it is no file with a name (a buffer)."""
    target = kwargs["f"] if "f" in kwargs else args[1] if len(args) > 1 else None
    name = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return None
    path = os.fspath(name)
    return os.path.abspath(path) if isinstance(path, str) else None


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
