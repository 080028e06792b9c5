"""The API server of a testbed, killed, frozen and brought back."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator

from testbed import control_plane, processes
from testbed.state import State

_NAME = "kube-apiserver"


def kill(state: State) -> None:
    """End the API server at once, and wait until its port is free."""
    processes.stop(state, _NAME, 0)
    address = (state.plan.host, state.plan.port(_NAME))
    with contextlib.suppress(OSError):
        while True:
            socket.create_connection(address, 1).close()
            time.sleep(0.02)


def restart(state: State) -> None:
    """Start a new API server, after killing the one that runs, and wait until it serves."""
    kill(state)
    control_plane.start(state, _NAME)
    control_plane.wait_api(state)


@contextlib.contextmanager
def frozen(state: State) -> Iterator[None]:
    """Stop the API server's process: connections stay open and nothing answers. It goes on after the block."""
    pid = processes.find(state, _NAME)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
