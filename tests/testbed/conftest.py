"""Nodes with simulated GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from testbed.nvml.state import NvmlState
from tests.testbed import nvml_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NvmlState]:
    """An 8-GPU H100 node, NVML initialised."""
    with nvml_node.installed(tmp_path / "lib") as state:
        pynvml.nvmlInit()
        yield state


@pytest.fixture
def tray(tmp_path: Path) -> Iterator[NvmlState]:
    """A GB200 tray with 4 GPUs, NVML initialised."""
    with nvml_node.installed(tmp_path / "lib", "gb200") as state:
        pynvml.nvmlInit()
        yield state
