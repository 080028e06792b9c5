"""What the chart tells kube-scheduler is what tests and benches run with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from testbed.scheduling import configuration

Render = Callable[..., list[dict[str, Any]]]


def of_the_chart(render: Render, *values: str) -> dict[str, Any]:
    maps = (one["data"] for one in render(*values) if one["kind"] == "ConfigMap")
    found: dict[str, Any] = yaml.safe_load(
        next(data["kube-scheduler.yaml"] for data in maps if "kube-scheduler.yaml" in data)
    )
    return found


def test_the_testbed_runs_kube_scheduler_with_the_charts_configuration(render: Render) -> None:
    chart, testbed = of_the_chart(render), configuration(Path("kubeconfig"), 8888)
    assert chart.keys() == testbed.keys()
    for key in chart.keys() - {"clientConnection", "leaderElection"}:
        assert chart[key] == testbed[key], key


def test_the_share_of_nodes_that_a_pod_is_tried_on_can_be_set(render: Render) -> None:
    chosen = of_the_chart(render, "--set", "scheduler.kubeScheduler.percentageOfNodesToScore=100")
    assert chosen["percentageOfNodesToScore"] == 100
