"""A real PyTorch, the one of the testbed, and the runtime installed as the init container does."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from inpod.install import install
from testbed import pytorch
from testbed.say import to_stderr

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def torch_path() -> Path:
    """Return the folder of the testbed's PyTorch, which is installed first where the cache lacks it."""
    return pytorch.ensure(to_stderr)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return the pod's folder with the runtime in it."""
    folder = tmp_path / "outrider"
    folder.mkdir()
    install(str(folder))
    return folder


@pytest.fixture
def run_rank(shared: Path) -> Run:
    """Run Python code as rank 3 of the pod; further arguments are environment variables."""

    def run(code: str, *path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        rank = {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "OUTRIDER_DIR": str(shared)}
        return run_python(code, [shared / "py", *path], rank | environment)

    return run


def run_python(code: str, path: list[Path], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter and return what it wrote; fails where it does."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    variables = clean | {"PYTHONPATH": ":".join(map(str, path)), "OMP_NUM_THREADS": "1"} | dict(environment)
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
