"""Metrics of the scheduler plugin."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

REQUEST_SECONDS: Final = Histogram(
    "outrider_extender_request_seconds",
    "Time to answer one request of kube-scheduler.",
    ["verb", "code"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)
REFUSED_NODES: Final = Counter(
    "outrider_extender_refused_nodes_total", "Nodes that filter dropped, by reason.", ["reason"]
)
PLAN_SECONDS: Final = Histogram(
    "outrider_planner_plan_seconds",
    "Time to decide on one gang, by outcome: planned, waiting or settled.",
    ["outcome"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
UNGATED_PODS: Final = Counter("outrider_planner_ungated_pods_total", "Pods pinned and released to kube-scheduler.")
REPLACED_RANKS: Final = Counter("outrider_planner_replaced_ranks_total", "Ranks that got another node.")
ERRORS: Final = Counter("outrider_planner_errors_total", "Work on a gang that failed and is tried again.")
WAITING_GANGS: Final = Gauge("outrider_planner_waiting_gangs", "Gangs with pods that are not bound.")
SNAPSHOT_NODES: Final = Gauge("outrider_snapshot_nodes", "Nodes that filter knows.")
