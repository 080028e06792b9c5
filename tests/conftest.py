"""Fixtures for every area: a real control plane with Outrider's resources, and a client of it.

From the testbed: ``control_plane``, ``cluster`` (both a testbed State) and ``namespace``; a failed test that used one
prints events, objects and logs.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.kube.client import Client
from outrider.kube.transport import connect
from testbed.build import program
from testbed.state import State

pytest_plugins = ["testbed.pytest_plugin"]


def pytest_sessionstart() -> None:
    """Tell asyncio that there is no loop: pytest-asyncio's asking for one would else make one that nobody closes."""
    asyncio.set_event_loop(None)


_CRDS = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"


@pytest.fixture(scope="session")
def kubeconfig(control_plane: State) -> Path:
    """Return the administrator's kubeconfig of a control plane that knows Outrider's custom resources."""
    path = control_plane.folder / "kubeconfig"
    kubectl = [program("kubectl"), f"--kubeconfig={path}"]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", _CRDS], check=True)
    subprocess.run([*kubectl, "wait", "--for=condition=Established", "--timeout=20s", "-f", _CRDS], check=True)
    return path


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    """Yield an administrator's client."""
    async with connect("outrider-tests", kubeconfig=kubeconfig) as connected:
        yield connected
