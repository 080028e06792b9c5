"""Metrics of the extender's process; the plugin shows them beside its own."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

REGISTRY: Final = CollectorRegistry()

REQUEST_SECONDS: Final = Histogram(
    "outrider_extender_request_seconds",
    "Time to answer one request of kube-scheduler.",
    ["verb", "code"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
    registry=REGISTRY,
)
SILENCES: Final = Counter(
    "outrider_extender_silences_total",
    "Times that the plugin's main process was silent for 5 seconds; requests get HTTP 503 until it is heard again.",
    registry=REGISTRY,
)
REFUSED_NODES: Final = Counter(
    "outrider_extender_refused_nodes_total", "Nodes that filter dropped, by reason.", ["reason"], registry=REGISTRY
)
