"""Fixtures for tests against a real Kubernetes: a control plane, a cluster, a namespace per test."""

import contextlib
import os
import secrets
import time
from collections.abc import Generator, Iterator

import pytest

from testbed import cluster, control_plane, processes, report, state
from testbed.api import Api
from testbed.errors import TestbedError
from testbed.paths import ROOT, state_root
from testbed.say import to_stderr
from testbed.state import State

_NODES = 4
_PATIENCE_S = 90


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --testbed."""
    words = "run on this testbed, which must be up and stays up, instead of new ones"
    parser.addoption("--testbed", metavar="NAME", help=words)


@pytest.fixture(name="fresh_name", scope="session")
def _fresh_name() -> str:
    """Stem of testbed names of this run; what killed runs left is removed first."""
    for folder in state_root().glob("test-*/state.json"):
        name = folder.parent.name
        if not processes.is_alive(int(name.split("-")[1])):
            cluster.down(name)
    return f"test-{os.getpid()}"


@pytest.fixture(name="control_plane", scope="session")
def _control_plane(fresh_name: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """A testbed without real nodes, up for the whole run."""
    with _given_or_fresh(pytestconfig, f"{fresh_name}-cp", nodes=0) as given:
        yield given


@pytest.fixture(name="cluster", scope="session")
def _cluster(fresh_name: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """A testbed with four real nodes, up for the whole run; nodes that a test powered off come back."""
    if not ROOT:
        pytest.skip("real nodes need root")
    with _given_or_fresh(pytestconfig, f"{fresh_name}-nodes", nodes=_NODES) as given:
        yield given


@pytest.fixture(name="namespace")
def _namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new namespace in the testbed that the test uses; removed afterwards."""
    used = "cluster" if "cluster" in request.fixturenames else "control_plane"
    given: State = request.getfixturevalue(used)
    name = f"test-{secrets.token_hex(3)}"
    with contextlib.closing(control_plane.admin(given)) as api:
        api.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
        _await_account(api, name)
    yield name
    with contextlib.closing(control_plane.admin(given)) as api:  # the test may have restarted the API server
        api.call("DELETE", f"/api/v1/namespaces/{name}")


def _await_account(api: Api, namespace: str) -> None:
    """Wait for the namespace's default account, without which it takes no pods.

    The controller manager makes it, and needs up to half a minute to come back after a test stopped the API server.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while api.call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")[0] != 200:
        if time.monotonic() > deadline:
            message = f"namespace {namespace} got no default account within {_PATIENCE_S} s"
            raise TestbedError(message)
        time.sleep(0.05)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the cluster knows below a failed test that used one."""
    result = yield
    if result.failed:
        funcargs = getattr(item, "funcargs", {})
        for given in filter(None, map(funcargs.get, ("cluster", "control_plane"))):
            with contextlib.suppress(TestbedError, OSError):
                result.sections.extend(report.sections(given, funcargs.get("namespace")))
    return result


@contextlib.contextmanager
def _given_or_fresh(config: pytest.Config, name: str, nodes: int) -> Iterator[State]:
    given = config.getoption("--testbed")
    if given:
        yield state.require(given)
        return
    try:
        yield cluster.up(name, nodes, say=to_stderr)
    finally:
        cluster.down(name)
