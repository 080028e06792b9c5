"""Wakes the event loop when a regular file changes (inotify), so that nobody has to look again and again."""

import ctypes
import os
from typing import Final

_MODIFY, _ATTRIB, _MOVE_SELF, _DELETE_SELF = 0x2, 0x4, 0x800, 0x400  # linux/inotify.h
_EVENTS_BYTES: Final = 4096


class FileEvents:
    """Events of one open file. Raises OSError where the kernel gives none."""

    def __init__(self, file: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "no more inotify instances")
        path = f"/proc/self/fd/{file}".encode()  # the file that is open, whatever its name leads to by now
        if libc.inotify_add_watch(self.descriptor, path, _MODIFY | _ATTRIB | _MOVE_SELF | _DELETE_SELF) < 0:
            self.close()
            raise OSError(ctypes.get_errno(), "no inotify watch for the file")

    def clear(self) -> None:
        """Forget the events that came."""
        try:
            while os.read(self.descriptor, _EVENTS_BYTES):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)
