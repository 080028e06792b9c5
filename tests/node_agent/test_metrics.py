"""The rules of `promtool check metrics`, on every metric that the agent's process can show."""

import re
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import Metric

from node_agent import app as _app  # noqa: F401 - importing it makes all metrics of the process
from node_agent.agent import code_label
from outrider.health.catalogue import load

OTHER_UNITS = re.compile(
    r"_(ms|milliseconds?|us|microseconds?|ns|nanoseconds?|minutes?|hours?|days?|sec|secs|kb|kib|kilobytes|mb|mib"
    r"|megabytes|gb|gib|gigabytes|bits?|percent|percents|pct|fahrenheit|kelvin|milliwatts?|mhz|ghz)(_|$)"
)
TYPE_WORDS = re.compile(r"_(counter|gauge|histogram|summary)(_|$)")


RULES: dict[str, Callable[[Metric], object]] = {
    "no help text": lambda metric: not metric.documentation.strip(),
    "name is not lower_snake_case, or holds a colon": lambda metric: not re.fullmatch(r"[a-z][a-z0-9_]*", metric.name),
    # The client takes _total off a counter's name and puts it on its samples.
    "_total on something that is no counter": lambda metric: metric.name.endswith("_total"),
    "a suffix of histograms": lambda metric: metric.name.endswith(("_count", "_sum", "_bucket")),
    "no base unit (seconds, bytes, ratio, celsius)": lambda metric: OTHER_UNITS.search(metric.name),
    "the type is in the name": lambda metric: TYPE_WORDS.search(metric.name),
    "label le": lambda metric: metric.type != "histogram" and any("le" in one.labels for one in metric.samples),
}


def problems(metric: Metric) -> list[str]:
    return [words for words, broken in RULES.items() if broken(metric)]


def test_every_metric_of_the_agent_keeps_prometheus_rules() -> None:
    ours = [metric for metric in REGISTRY.collect() if metric.name.startswith("outrider_")]
    assert len(ours) > 10
    assert {metric.name: found for metric in ours if (found := problems(metric))} == {}


@pytest.mark.parametrize(
    ("kind", "name", "help_text"),
    [
        (Gauge, "outrider_things_total", "A gauge that says total."),
        (Gauge, "outrider_age_ms", "Milliseconds."),
        (Gauge, "outrider_used_percent", "Percent."),
        (Gauge, "outrider_size_gauge", "The type in the name."),
        (Gauge, "outrider_wait_count", "Suffix of histograms."),
        (Gauge, "outrider_no_help", ""),
        (Gauge, "outrider:recorded", "A colon."),
        (Counter, "outrider_waitMinutes", "Camel case."),
    ],
)
def test_the_rules_see_what_is_wrong(kind: type[Gauge] | type[Counter], name: str, help_text: str) -> None:
    registry = CollectorRegistry()
    kind(name, help_text, registry=registry)
    (metric,) = registry.collect()
    assert problems(metric)


def test_codes_that_no_row_knows_share_one_label() -> None:
    catalogue = load()
    assert code_label("xid/79", catalogue) == "xid/79"
    assert code_label("xid/99999", catalogue) == "xid/other"
    assert code_label("sxid/77777", catalogue) == "sxid/other"
