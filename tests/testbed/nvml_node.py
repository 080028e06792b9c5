"""A simulated node for tests that call NVML in this process."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from testbed import nvml
from testbed.nvml.state import NvmlState

PATH_VARIABLE = "SIM_NVML_STATE"


@contextmanager
def installed(folder: Path, profile: str = "h100") -> Iterator[NvmlState]:
    """A node's library and state; pynvml of this process reads it, initialised or not as the test left it."""
    state = nvml.install(folder, profile, "gpu-0")
    ctypes.CDLL(str(nvml.build()))  # pynvml asks for the bare soname, and then finds a loaded library
    before = os.environ.get(PATH_VARIABLE)
    os.environ[PATH_VARIABLE] = str(state.path)
    try:
        yield state
    finally:
        shut_down()
        os.environ.pop(PATH_VARIABLE)
        if before is not None:
            os.environ[PATH_VARIABLE] = before


def shut_down() -> None:
    """End every init of this process."""
    try:
        while True:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        pass


def code_of(call: Any, *arguments: Any) -> int:
    """Return code of a call: 0, or that of the error that pynvml raised."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0
