"""Ports for processes of this machine."""

import socket


def free_port() -> int:
    """A port that nobody has now, on any address; somebody may take it before it is listened on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
