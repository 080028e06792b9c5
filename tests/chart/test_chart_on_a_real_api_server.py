"""The chart against the real API server, which checks schemas and compiles every CEL expression."""

import subprocess
from collections.abc import Callable

import pytest

from testbed.demo import release
from testbed.demo.release import CHART, NAMESPACE, RELEASE, VALUES
from testbed.state import State

pytestmark = pytest.mark.control_plane


@pytest.mark.parametrize("values", [[], ["--values", str(VALUES)]], ids=["default", "testbed"])
def test_the_api_server_accepts_everything_that_the_chart_renders(
    control_plane: State, run_helm: Callable[..., subprocess.CompletedProcess[str]], values: list[str]
) -> None:
    release.kubectl(
        control_plane, "apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
    )
    rendered = run_helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", "v1.37.2", *values)
    answer = release.kubectl(control_plane, "apply", "--dry-run=server", "-f", "-", stdin=rendered.stdout)
    assert answer.count("server dry run") == rendered.stdout.count("\nkind: ")
