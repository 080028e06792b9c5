from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed import nvml
from testbed.nvml.state import NvmlState
from tests.incidents.machine import Machine, Switch


@pytest.fixture
async def switch_on(tmp_path: Path) -> AsyncIterator[Switch]:
    """Yield what switches machines on: by name, each with a folder of its own."""
    machines: list[Machine] = []

    def switch(name: str = "m", **settings: object) -> Machine:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        machines.append(Machine(folder, name, **settings))
        return machines[-1]

    yield switch
    for machine in machines:
        await machine.close()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlState:
    """Return the state of a simulated library with eight H100s."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "nvml"))
    return nvml.install(tmp_path / "nvml", "h100", seed="node")
