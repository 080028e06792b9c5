"""Reads small files of sysfs and procfs."""

import os
from typing import Final

_BYTES_MAX: Final = 64 * 1024  # a page is what sysfs gives; mount tables are longer


def read_small(path: str) -> str:
    """Return the text of a file without the space around it, "" where there is none. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    try:
        return os.read(file, _BYTES_MAX).decode("utf-8", "replace").strip()
    finally:
        os.close(file)


def read_or_empty(path: str) -> str:
    """Return what ``read_small`` does, "" where the file can't be read: kernels without the feature answer an error."""
    try:
        return read_small(path)
    except OSError:
        return ""


def names_in(path: str) -> list[str]:
    """Return the sorted names in a folder, none where there is no such folder. Raises OSError."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
