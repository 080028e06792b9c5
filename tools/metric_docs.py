"""Writes docs/reference/metrics.md: every metric of every component, and the alerts that the chart can install.

`python -m tools.metric_docs [--check]`; --check only says whether the committed page is current.
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated

import msgspec
from prometheus_client.metrics import MetricWrapperBase

import node_agent.metrics
import outrider.kube.metrics
import remediation.metrics
import scheduler_plugin.extender.metrics
import scheduler_plugin.metrics
import webhook.metrics
from tools.pages import ROOT, checking, write

PAGE = ROOT / "docs" / "reference" / "metrics.md"
ALERTS = ROOT / "charts" / "outrider" / "files" / "alerts.yaml"
_PARTS: dict[str, ModuleType] = {
    "Scheduler and planner": scheduler_plugin.metrics,
    "Extender": scheduler_plugin.extender.metrics,
    "Node agent": node_agent.metrics,
    "Webhook": webhook.metrics,
    "Remediation": remediation.metrics,
    "Every part that talks to the API server": outrider.kube.metrics,
}
_HEAD = """<!-- Written by tools/metric_docs.py: edit the part's metrics.py or the chart's alerts.yaml instead. -->

# Metrics and alerts

Every part serves its metrics at `/metrics` of the port named `metrics` (8080). Planner metrics are those of the replica
that leads; the others say so where it matters. Times are in seconds.
"""
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"hold": "for"}):
    """One alerting rule of Prometheus; ``annotations`` have summary, description and runbook."""

    alert: Text
    expr: Text
    hold: Text
    labels: dict[str, Text]
    annotations: dict[str, Text]


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of rules."""

    name: Text
    rules: list[Rule]


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule file of Prometheus."""

    groups: list[Group]


def alerts(text: str) -> list[Rule]:
    """Return the rules of a rule file. Raises msgspec.ValidationError, which names the place."""
    return [rule for group in msgspec.yaml.decode(text, type=Rules).groups for rule in group.rules]


def metrics(part: ModuleType) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, labels and meaning of each metric of a module, by name."""
    found = [one for one in vars(part).values() if isinstance(one, MetricWrapperBase)]
    for metric in sorted(found, key=_name):
        (described,) = metric.describe()
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001 - no public way to them
        yield _name(metric), described.type, labels, described.documentation.rstrip(".")


def names() -> frozenset[str]:
    """Return the names of all metrics, as queries write them."""
    rows = [(name, kind) for part in _PARTS.values() for name, kind, _, _ in metrics(part)]
    ends = {"histogram": ("_bucket", "_sum", "_count")}
    return frozenset(name + end for name, kind in rows for end in ends.get(kind, ("",)))


def _name(metric: MetricWrapperBase) -> str:
    (described,) = metric.describe()
    return f"{described.name}_total" if described.type == "counter" else described.name


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_section(title, part) for title, part in _PARTS.items()) + _alerts()


def _section(title: str, part: ModuleType) -> str:
    rows = [f"| `{name}` | {kind} | {labels} | {meaning}. |" for name, kind, labels, meaning in metrics(part)]
    return f"\n## {title}\n\n| Metric | Type | Labels | Means |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _alerts() -> str:
    rows = [
        f"| `{rule.alert}` | {rule.labels['severity']} | {rule.annotations['summary']}. | `{_cell(rule.expr)}` for "
        f"{rule.hold} | [what to do](../troubleshooting.md#{rule.annotations['runbook']}) |"
        for rule in alerts(ALERTS.read_text("utf-8"))
    ]
    head = (
        "\n## Alerts\n\n`alerts.enabled=true` in the chart makes a PrometheusRule of these; without the Prometheus "
        "operator, load\n`charts/outrider/files/alerts.yaml` as a rule file.\n\n"
        "| Alert | Severity | Says | Condition | Then |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the page, or check it."""
    return 0 if write({PAGE: page()}, check=checking()) else 1


if __name__ == "__main__":
    sys.exit(main())
