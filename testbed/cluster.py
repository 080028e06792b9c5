"""Bring a whole testbed up and down: the interface for the command line and for pytest fixtures."""

import contextlib
from collections.abc import Iterator

import msgspec

from testbed import (
    build,
    cleanup,
    control_plane,
    image_seed,
    images,
    kwok,
    labels,
    limits,
    locks,
    node,
    node_images,
    packages,
    processes,
    pytorch,
    sandbox_image,
    services,
    state,
    versions,
)
from testbed.errors import MissingPrerequisiteError
from testbed.image_seed import Seed
from testbed.paths import ROOT, check_name, state_dir, state_root
from testbed.say import Say, silent, step
from testbed.state import State


def build_all(say: Say) -> None:
    """Bring everything into the cache that any testbed needs."""
    build.build_all(versions.ALL, say)
    if ROOT:
        prepare_nodes(say)


def prepare_nodes(say: Say) -> Seed:
    """Bring into the cache what real nodes need; return their images.

    Raises:
        MissingPrerequisiteError: something is missing on this machine; the message says how to get it.
    """
    packages.ensure(say)
    limits.ensure(say)
    build.build_all(versions.CONTROL_PLANE + versions.NODES, say)
    pytorch.ensure(say)
    return image_seed.make([sandbox_image.archive(), *images.archives(say)], say)


def up(name: str, nodes: int = 0, kwok_nodes: int = 0, profile: str = "h100", say: Say = silent) -> State:
    """Bring a testbed up, or bring one that is up to that many nodes, starting nodes that are powered off.

    What a killed command left behind is removed first.

    Raises:
        MissingPrerequisiteError: real nodes are asked for without root, or a program is missing.
        BusyError: another command works on this testbed.
        TestbedError: something did not start; the message says what, and its last log lines.
    """
    _check_rights(nodes)
    labels.profile(profile)
    seed = prepare_nodes(say) if nodes else None
    build.build_all(() if nodes else versions.CONTROL_PLANE, say)
    with lock(name):
        current = _reusable(name, profile)
        if current is None:
            _clean(name, say)
            current = state.claim(name, profile)
            services.prepare_host(current)
            control_plane.up(current, say)
        return _grow(current, nodes, kwok_nodes, seed, say)


def down(name: str, say: Say = silent) -> None:
    """Remove a testbed and everything that it left on the machine; fine if there is none.

    Raises:
        BusyError: another command works on this testbed.
    """
    with lock(check_name(name)), step(say, f"testbed {name}", "removed"):
        cleanup.remove(name)


@contextlib.contextmanager
def temporary(name: str, nodes: int = 0, kwok_nodes: int = 0, profile: str = "h100") -> Iterator[State]:
    """A new testbed for the length of a with block; one of that name is removed first."""
    down(name)
    try:
        yield up(name, nodes, kwok_nodes, profile)
    finally:
        down(name)


def _grow(current: State, nodes: int, kwok_nodes: int, seed: Seed | None, say: Say) -> State:
    """Add the nodes that are missing; the state is saved before each so that `down` knows of them."""
    if seed:
        current = _saved(current, nodes=max(nodes, current.nodes))
        with step(say, f"{current.nodes} real nodes", "Ready"):
            services.start_for_nodes(current)
            node.start_all(current, seed)
            node_images.load(node.all_of(current), seed.archives)
            node.wait_ready(current)
    if kwok_nodes or current.kwok:
        first, current = current.kwok, _saved(current, kwok=max(kwok_nodes, current.kwok))
        kwok.up(current, first, current.kwok, say)
    return current


def _saved(current: State, **changes: int) -> State:
    changed = msgspec.structs.replace(current, **changes)
    state.save(changed)
    return changed


def _reusable(name: str, profile: str) -> State | None:
    """State of a testbed whose control plane runs and whose profile fits."""
    current = state.load(name)
    if current is None or current.profile != profile:
        return None
    running = all(processes.find(current, p) for p in control_plane.PROGRAMS)
    return current if running and control_plane.is_ready(current) else None


def _clean(name: str, say: Say) -> None:
    if state.load(name) or any(processes.of_testbed(name)) or state_dir(name).exists():
        with step(say, f"leftovers of testbed {name}", "removed"):
            cleanup.remove(name)


def _check_rights(nodes: int) -> None:
    if nodes and not ROOT:
        message = (
            "real nodes need root (namespaces, mounts, cgroups): run the command with sudo,"
            " or use simulated nodes only: `python -m testbed up --nodes 0 --kwok 50`"
        )
        raise MissingPrerequisiteError(message)


def lock(name: str) -> contextlib.AbstractContextManager[None]:
    """Keep other commands off a testbed; raises BusyError if one works on it."""
    return locks.exclusive(state_root() / "locks" / check_name(name), f"testbed {name}")
