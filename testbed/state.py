"""What a testbed remembers about itself between two commands, and the slot that it holds."""

import ipaddress
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from testbed import locks
from testbed.errors import TestbedError
from testbed.paths import ROOT, bulk_dir, state_dir, state_root
from testbed.plan import SLOTS, Plan


class State(msgspec.Struct, frozen=True):
    """Content of state.json."""

    name: str
    slot: int
    profile: str
    nodes: int = 0
    """Real nodes, gpu-0 to gpu-(nodes-1)."""
    kwok: int = 0
    """Simulated nodes."""

    @property
    def plan(self) -> Plan:
        """Addresses and ports."""
        return Plan(self.slot, bridged=ROOT)

    @property
    def folder(self) -> Path:
        """State folder."""
        return state_dir(self.name)

    @property
    def bulk(self) -> Path:
        """Folder for large data."""
        return bulk_dir(self.name)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the real nodes."""
        return tuple(f"gpu-{i}" for i in range(self.nodes))

    @property
    def marker(self) -> str:
        """Environment entry that every process of this testbed carries."""
        return marker(self.name)


def marker(name: str) -> str:
    """Environment entry of a testbed's processes; the folder makes it differ between users."""
    return f"OUTRIDER_TESTBED={state_dir(name)}"


def load(name: str) -> State | None:
    """State of a testbed, None if there is none or an interrupted `up` left half a file."""
    try:
        return msgspec.json.decode((state_dir(name) / "state.json").read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def require(name: str) -> State:
    """State of a testbed that must be up.

    Raises:
        TestbedError: there is none of that name.
    """
    state = load(name)
    if state is None:
        message = f"no testbed named {name!r} is up: start it with `python -m testbed --name {name} up`"
        raise TestbedError(message)
    return state


def save(state: State) -> None:
    """Write state.json at once or not at all."""
    state.folder.mkdir(parents=True, exist_ok=True)
    partial = state.folder / "state.json.partial"
    partial.write_bytes(msgspec.json.encode(state))
    partial.rename(state.folder / "state.json")


def claim(name: str, profile: str) -> State:
    """Take the first slot whose network and ports nobody uses, and save the new state.

    Raises:
        TestbedError: every slot is taken.
    """
    with locks.waiting(state_root() / "locks" / "slots"):
        taken = {s.slot for s in others(name)}
        for slot in range(SLOTS):
            if slot not in taken and _is_free(Plan(slot, bridged=ROOT)):
                state = State(name, slot, profile)
                save(state)
                return state
    message = f"all {SLOTS} testbed slots are taken: `python -m testbed --name NAME down` frees one"
    raise TestbedError(message)


def others(name: str) -> Iterator[State]:
    """States of the other testbeds of this user."""
    for file in state_root().glob("*/state.json"):
        state = load(file.parent.name)
        if state and state.name != name:
            yield state


def _is_free(plan: Plan) -> bool:
    mine = ipaddress.ip_network(plan.network)
    if ROOT and any(mine.overlaps(route) for route in _routes()):
        return False
    return not any(_is_listening(port) for port in plan.ports)


def _routes() -> Iterator[ipaddress.IPv4Network]:
    out = subprocess.run(["ip", "-4", "-json", "route"], capture_output=True, text=True, check=True).stdout
    for route in json.loads(out):
        if route["dst"] != "default":
            yield ipaddress.IPv4Network(route["dst"], strict=False)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
