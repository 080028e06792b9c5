"""Copies the in-pod runtime into the pod's shared folder: ``python3 -m inpod.install /outrider``.

Writes below the given folder only, so it works on a read-only root and as any user. Each file is put in place by a
rename, so a container that starts meanwhile, or a second run after a sandbox restart, never reads half a module.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_RUNTIME = os.path.join(_HERE, "runtime")
_FOLDER_MODE = 0o755  # containers of the pod may run as other users than the init container
_FILE_MODE = 0o644


def install(directory: str) -> list[str]:
    """Copy the runtime to DIRECTORY/py and return the paths written. Raises OSError where the folder can't be used."""
    target = os.path.join(directory, "py")
    package = os.path.join(target, "outrider_inpod")
    for folder in (target, package):
        _make_folder(folder)
    modules = sorted(name for name in os.listdir(_RUNTIME) if name.endswith(".py"))
    copies = [(os.path.join(_HERE, "sitecustomize.py"), os.path.join(target, "sitecustomize.py"))]
    copies += [(os.path.join(_RUNTIME, name), os.path.join(package, name)) for name in modules]
    return [_copy(source, destination) for source, destination in copies]


def _make_folder(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, _FOLDER_MODE)  # whatever the umask


def _copy(source: str, destination: str) -> str:
    temporary = f"{destination}.{os.getpid()}"
    with open(source, "rb") as reader, open(temporary, "wb") as writer:
        writer.write(reader.read())
    os.chmod(temporary, _FILE_MODE)
    os.replace(temporary, destination)
    return destination


def main(arguments: list[str]) -> int:
    """Install into the one folder given; return the exit code, with one line on stderr saying what went wrong."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python3 -m inpod.install DIRECTORY\n")
        return 2
    try:
        written = install(arguments[0])
    except OSError as error:
        # The training container starts without the beacon rather than not at all.
        sys.stderr.write(f"outrider: {error}; the job runs without step beacon and checkpoint requests\n")
        return 0
    sys.stdout.write(f"outrider: {len(written)} files in {arguments[0]}/py\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
