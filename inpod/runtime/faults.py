"""How a failure of ours ends: in a file, once, and never in the job."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ERROR_FILE = "inpod.error"
_MAX_BYTES = 65536  # ranks share the file and may restart for ever


def note(directory: str, where: str, error: BaseException) -> None:
    """Append what failed to DIRECTORY/inpod.error, with the place of the failure. Never raises."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace is not None else "?"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rank = os.environ.get("RANK", "?")
    line = f"{stamp} rank {rank} pid {os.getpid()} {where}: {type(error).__name__}: {error} at {place}\n"
    try:
        with open(os.path.join(directory, ERROR_FILE), "a", encoding="utf-8", errors="replace") as file:
            if file.tell() < _MAX_BYTES:
                file.write(line)
    except OSError:
        return  # the folder itself is broken: nowhere to say it


class Guard:
    """Calls our code from the job's. The first failure is noted and switches all of it off for this process."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.broken = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call ``function`` unless something failed before."""
        if self.broken:
            return
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - the job must not notice any failure of ours
            self.broken = True
            note(self._directory, getattr(function, "__name__", "?"), error)
