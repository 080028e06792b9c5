"""Controllers start and stop with a testbed, and leave nothing on the machine."""

import contextlib
from collections.abc import Iterator

import pytest

from testbed import build, cluster, operators, processes, versions
from testbed.control_plane import admin
from testbed.errors import TestbedError
from testbed.paths import ROOT
from testbed.say import to_stderr
from testbed.state import State
from tests.testbed import leftovers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROOT, reason="each controller has a network namespace, which needs root"),
]


@pytest.fixture
def fresh(fresh_name: str) -> Iterator[State]:
    build.build_all(versions.OPERATORS, to_stderr)
    with cluster.temporary(f"{fresh_name}-come") as state:
        yield state


def test_a_controller_serves_its_kind_until_it_is_stopped_and_down_leaves_nothing(fresh: State) -> None:
    with operators.running(fresh, "jobset"), contextlib.closing(admin(fresh)) as api:
        assert processes.find(fresh, "jobset")
        wrong = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "A"}, "spec": {}}
        code, answer = api.call("POST", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", wrong)
        assert code >= 400, answer
    assert processes.find(fresh, "jobset") is None
    operators.start(fresh, "jobset")
    cluster.down(fresh.name)
    assert leftovers.of(fresh.name, fresh.plan) == []


def test_an_unknown_controller_is_refused_with_those_that_there_are(fresh: State) -> None:
    with pytest.raises(TestbedError, match="no controller is named 'jobsets'; there are jobset, lws, "):
        operators.start(fresh, "jobsets")
