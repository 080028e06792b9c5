"""The simulated NVML library: built from C, put into a node's driver folder with the state it answers from."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from testbed import locks
from testbed.errors import MissingPrerequisiteError, TestbedError
from testbed.nvml.profiles import profile_values
from testbed.nvml.state import NvmlState
from testbed.paths import cache_dir

LIBRARY = "libnvidia-ml.so.1"
STATE_FILE = "nvml.state"

_SOURCES = Path(__file__).parent / "src"
_FLAGS = (
    *("-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pthread", f"-Wl,-soname,{LIBRARY}"),
)


def build(omit: tuple[str, ...] = ()) -> Path:
    """Path of the library in the cache, compiled if sources, flags or `omit` have no copy there yet.

    Args:
        omit: C symbols to leave out, as an older driver does.

    Raises:
        MissingPrerequisiteError: there is no gcc.
        TestbedError: the compiler refused; the message ends with its words.
    """
    folder = cache_dir() / "bin" / f"nvml-{_digest(omit)}"
    with locks.waiting(cache_dir() / "nvml.lock"):
        if not (folder / LIBRARY).exists():
            _compile(folder, omit)
    return folder / LIBRARY


def install(folder: Path, profile: str, seed: str, *, rack: str = "rack-0", omit: tuple[str, ...] = ()) -> NvmlState:
    """Put the library and a fresh state file into `folder` and return the state.

    Args:
        folder: where a process will find the library (LD_LIBRARY_PATH).
        profile: a board of profiles.py, such as `h100` or `gb200`.
        seed: node name; serials and UUIDs follow from it, so a node keeps them over reinstalls.
        rack: trays of one rack share one NVLink cluster (gb200).
        omit: C symbols to leave out, as an older driver does.

    Raises:
        TestbedError: no such profile, or the library could not be built.
    """
    values = profile_values(profile, seed, rack)
    library = build(omit)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{LIBRARY}.partial"
    shutil.copyfile(library, partial)
    partial.rename(folder / LIBRARY)
    state = NvmlState(folder / STATE_FILE)
    state.replace(values)
    return state


def _digest(omit: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((_FLAGS, omit)).encode())
    for file in sorted(_SOURCES.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _compile(folder: Path, omit: tuple[str, ...]) -> None:
    if not shutil.which("gcc"):
        message = "gcc is missing: install it with `apt-get install gcc libc6-dev`"
        raise MissingPrerequisiteError(message)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{LIBRARY}.partial"
    flags = list(_FLAGS)
    if omit:
        script = folder / "symbols.map"
        script.write_text(f"{{ local: {' '.join(f'{name};' for name in omit)} }};\n")
        flags.append(f"-Wl,--version-script={script}")
    command = ["gcc", *flags, "-o", str(partial), *map(str, sorted(_SOURCES.glob("*.c"))), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"building the simulated NVML library failed:\n{done.stderr.strip()[-3000:]}"
        raise TestbedError(message)
    partial.rename(folder / LIBRARY)
