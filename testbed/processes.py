"""Start and end the testbed's processes, and know them again from a later command."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testbed.errors import TestbedError
from testbed.state import State, marker

_TERM_S = 5.0
_POLL_S = 0.02


def spawn(state: State, name: str, argv: Sequence[object], env: Mapping[str, str] | None = None) -> int:
    """Start a process that outlives this command, its output going to logs/NAME.log; return its id."""
    log = state.folder / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    key, value = state.marker.split("=", 1)
    pid = os.posix_spawnp(
        str(argv[0]),
        [str(a) for a in argv],
        {**os.environ, **(env or {}), key: value},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    record = _record(state, name)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{pid} {_started(pid)}")
    return pid


def find(state: State, name: str) -> int | None:
    """Id of a named process if it runs; an id that was reused by something else does not count."""
    try:
        pid, started = _record(state, name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _started(int(pid)) == started else None


def stop(state: State, name: str, term_s: float = _TERM_S) -> None:
    """End a named process: SIGTERM, and SIGKILL after term_s seconds."""
    pid = find(state, name)
    if pid is not None:
        end([pid], term_s)
    _record(state, name).unlink(missing_ok=True)


def names(state: State) -> list[str]:
    """Names of all processes that were started and not stopped, whether or not they still run."""
    return sorted(p.name for p in (state.folder / "pids").glob("*"))


def require_running(state: State, name: str) -> None:
    """Check that a process did not die.

    Raises:
        TestbedError: it did; the message ends with its last words.
    """
    if find(state, name) is None:
        message = f"{name} ended unexpectedly; its last lines:\n{tail(state, name)}"
        raise TestbedError(message)


def tail(state: State, name: str, lines: int = 15) -> str:
    """Last lines of a process's log."""
    log = state.folder / "logs" / f"{name}.log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def end(pids: Sequence[int], term_s: float = _TERM_S) -> None:
    """End processes together: SIGTERM, wait up to term_s seconds, then SIGKILL, and wait until all are gone."""
    for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, _TERM_S)):
        alive = [p for p in pids if is_alive(p)]
        if wait_s > 0:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            wait_gone(alive, wait_s)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be collected does not."""
    return _started(pid) is not None


def of_testbed(name: str) -> Iterator[int]:
    """Every process that carries the testbed's marker, whoever started it."""
    wanted = marker(name).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and is_alive(int(folder.name)):
                yield int(folder.name)


def wait_gone(pids: Sequence[int], wait_s: float) -> None:
    """Wait up to wait_s seconds until all these processes ended."""
    deadline = time.monotonic() + wait_s
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot (proc(5), field 22); None once it has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _record(state: State, name: str) -> Path:
    return state.folder / "pids" / name
