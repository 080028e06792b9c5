"""The alerts that the chart can install."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from testbed.demo.release import CHART
from tools.metric_docs import ALERTS, PAGE, alerts, names, page

DOCS = CHART.parents[1] / "docs"
RULES = alerts(ALERTS.read_text())
WORDS = {
    "le",
    "verb",
    "code",
    "resource",
    "lease",
    "by",
    "rate",
    "sum",
    "max",
    "vector",
    "histogram_quantile",
    "and",
    "or",
}
Render = Callable[..., list[dict[str, Any]]]


def rules_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == "PrometheusRule"]


def test_alerts_are_off_unless_somebody_wants_them(render: Render) -> None:
    assert rules_of(render()) == []


def test_the_rule_object_holds_the_very_rules_of_the_file(render: Render) -> None:
    (rule,) = rules_of(render("--set", "alerts.enabled=true,alerts.labels.release=mine"))
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())
    assert rule["metadata"]["labels"]["release"] == "mine"
    assert rule["metadata"]["labels"]["app.kubernetes.io/name"] == "outrider"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_every_metric_of_a_condition_exists(rule: Any) -> None:
    bare = re.sub(r'"[^"]*"', "", rule.expr)
    asked = set(re.findall(r"[a-z_]+", bare)) - WORDS - {"m"}
    assert asked
    assert asked <= names()
    assert bare.count("(") == bare.count(")")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_every_alert_says_how_grave_it_is_and_where_the_way_out_stands(rule: Any) -> None:
    assert rule.labels["severity"] in ("info", "warning", "critical")
    assert set(rule.annotations) == {"summary", "description", "runbook"}
    titles = [line[3:] for line in (DOCS / "troubleshooting.md").read_text().splitlines() if line.startswith("## ")]
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert rule.annotations["runbook"] in anchors


def test_a_rule_without_a_condition_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        alerts("groups: [{name: a, rules: [{alert: A, expr: '', for: 1m, labels: {}, annotations: {}}]}]")


def test_the_page_of_metrics_is_current() -> None:
    assert Path(PAGE).read_text() == page()
