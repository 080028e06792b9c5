"""Run uv, the installer that also made this repository's environment."""

import os
import shutil
import subprocess
from pathlib import Path

from testbed.errors import MissingPrerequisiteError, TestbedError

REPOSITORY = Path(__file__).parents[1]


def find() -> Path:
    """Path of uv: on PATH, else the one that `make setup` brought.

    Raises:
        MissingPrerequisiteError: there is none.
    """
    on_path = shutil.which("uv")
    own = REPOSITORY / ".venv-uv" / "bin" / "uv"
    if on_path or own.exists():
        return Path(on_path or own)
    message = "uv is missing: run `make setup`, or `pip install uv`"
    raise MissingPrerequisiteError(message)


def run(what: str, command: list[str | Path], **environment: str) -> None:
    """Run a command in the repository with uv on its PATH.

    Raises:
        MissingPrerequisiteError: there is no uv.
        TestbedError: the command failed; the message ends with its words.
    """
    path = f"{find().parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = os.environ | {"PATH": path, "UV_PYTHON_DOWNLOADS": "never"} | environment
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{what} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}"
        raise TestbedError(message)
