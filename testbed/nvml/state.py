"""The state file that the simulated NVML library answers from; see src/state.c for its form."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from testbed import locks
from testbed.errors import TestbedError

Value = str | int
_KEY = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_]+)*")
_EVENTS_KEPT = 64
"""An event that 64 later ones have followed has been seen by every set that waits."""


def gpu_key(gpu: int, name: str) -> str:
    """Full key of one value of one GPU, by slot: the number it had at boot with all GPUs present."""
    return f"gpu.{gpu}.{name}"


class NvmlState:
    """Reads and changes one state file; writers take turns, and readers see old or new, never half."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, str]:
        """All keys with their values.

        Raises:
            TestbedError: there is no state file, so this is no driver folder.
        """
        try:
            return _parse(self.path.read_text())
        except FileNotFoundError:
            message = f"{self.path}: no such state file; is the node's name right and the testbed up?"
            raise TestbedError(message) from None

    def get(self, gpu: int, name: str) -> str | None:
        """Value that the library answers for one GPU: its own, else that of all GPUs, else None."""
        values = self.read()
        return values.get(gpu_key(gpu, name), values.get(f"gpu.{name}"))

    def gpu_count(self) -> int:
        """How many GPUs the board has, lost ones included."""
        return int(self.read()["gpu.count"])

    def replace(self, values: Mapping[str, Value]) -> None:
        """Set the whole content, keeping the event sequence so that waiting event sets miss nothing later."""
        with self._turn():
            sequence = _parse(self.path.read_text()).get("event.next", "1") if self.path.exists() else "1"
            self._write({**_checked(values), "event.next": sequence})

    def change(self, values: Mapping[str, Value | None]) -> None:
        """Set keys (None removes one), leaving the others.

        Raises:
            TestbedError: a key or value cannot stand in the file.
        """
        with self._turn():
            self._write(_merged(self.read(), values))

    def set_gpu(self, gpu: int, values: Mapping[str, Value | None]) -> None:
        """Set values of one GPU (None removes one, so that it falls back to that of all GPUs)."""
        self.change({gpu_key(gpu, name): value for name, value in values.items()})

    def add_event(self, gpu: int, kind: int, data: int) -> int:
        """Deliver an NVML event once to every event set that waits; returns its sequence number.

        Args:
            gpu: slot of the GPU.
            kind: event type bit, for example 8 for a critical Xid.
            data: Xid or new recovery action.
        """
        with self._turn():
            values = self.read()
            sequence = int(values.get("event.next", "1"))
            values.pop(f"event.{sequence - _EVENTS_KEPT}", None)
            event: dict[str, Value | None] = {f"event.{sequence}": f"{gpu} {kind} {data}", "event.next": sequence + 1}
            self._write(_merged(values, event))
        return sequence

    def _turn(self) -> AbstractContextManager[None]:
        return locks.waiting(self.path.with_name(f".{self.path.name}.lock"))

    def _write(self, values: Mapping[str, str]) -> None:
        partial = self.path.with_name(f".{self.path.name}.partial")
        partial.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        partial.rename(self.path)


def _parse(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in lines if equals}


def _merged(values: Mapping[str, str], changes: Mapping[str, Value | None]) -> dict[str, str]:
    removed = {key for key, value in changes.items() if value is None}
    added = _checked({key: value for key, value in changes.items() if value is not None})
    return {key: value for key, value in {**values, **added}.items() if key not in removed}


def _checked(values: Mapping[str, Value]) -> dict[str, str]:
    for key, value in values.items():
        if not _KEY.fullmatch(key) or "\n" in str(value):
            message = (
                f"{key!r} = {value!r}: keys are words joined by dots, for example temperature.gpu, values one line"
            )
            raise TestbedError(message)
    return {key: str(value) for key, value in values.items()}
