"""Keeps the agent's memory on the node's disk, so that neither a restart nor a reboot loses evidence."""

import logging
from pathlib import Path
from typing import Final

import msgspec

from node_agent.kept_file import write_whole
from node_agent.memory import Memory

_LOG: Final = logging.getLogger(__name__)
_FILE: Final = "memory.json"
_BYTES_MAX: Final = 4 * 1024 * 1024  # 128 findings and 64 GPUs have well under 200 KiB


class Store:
    """One JSON file in a folder, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def load(self) -> Memory:
        """Return the memory saved last; an empty one where there is none or it can't be read.

        A file that can't be read is moved aside: the evidence of this boot comes again from the kernel log.
        """
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_BYTES_MAX), type=Memory)
        except FileNotFoundError:
            return Memory()
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            _LOG.warning(
                "saved memory is unusable, starting anew", extra={"path": str(self._path), "problem": str(error)}
            )
            self._move_aside()
            return Memory()

    def _move_aside(self) -> None:
        try:
            self._path.rename(self._path.with_suffix(".unusable"))
        except OSError as error:
            _LOG.warning("could not move it aside", extra={"path": str(self._path), "problem": str(error)})

    def save(self, memory: Memory) -> None:
        """Write the memory. Raises OSError."""
        write_whole(self._path, msgspec.json.encode(memory))


def worth_saving(before: Memory, after: Memory) -> bool:
    """True where a restart would lose something; that a state is still there, or a log line was harmless, is not."""
    return _essence(before) != _essence(after)


def _essence(memory: Memory) -> tuple[object, ...]:
    findings = sorted((evidence.key, evidence.count) for evidence in memory.findings)
    accusations = [(one.code, one.job, one.owner, one.unit) for one in memory.accusations]
    still = msgspec.structs.replace(memory, sequence=-1, findings=[], accusations=[], driver_version="")
    return (findings, accusations, still)
