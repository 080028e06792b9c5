"""Metrics of the scheduler plugin."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

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
STALENESS_SECONDS: Final = Gauge(
    "outrider_informer_staleness_seconds",
    "Time since the API server was last heard about a kind; up to 60 on a quiet stream.",
    ["resource"],
)
OLDEST_WAITING_SECONDS: Final = Gauge(
    "outrider_planner_oldest_waiting_seconds", "How long the gang that waits longest has waited; 0 while none does."
)
AVOIDED_NODES: Final = Gauge(
    "outrider_avoided_nodes", "Nodes that get nothing new for a while, since pods fail there as they start."
)
RESERVED_RATIO: Final = Gauge(
    "outrider_planner_reserved_ratio",
    "Part of the GPUs that waiting gangs may hold (scheduler.queue.reservationPercent) which they do hold, 0 to 1.",
)
GANG_PODS: Final = Gauge("outrider_planner_gang_pods", "Pods of gangs, by where they stand.", ["stand"])
PREEMPTED_GANGS: Final = Counter(
    "outrider_planner_preempted_gangs_total", "Gangs evicted whole for one that comes first."
)
RELEASED_GANGS: Final = Counter(
    "outrider_planner_released_gangs_total", "Gangs released whole because their plan did not bind."
)
GATED_PODS: Final = Gauge(
    "outrider_gated_pods", "Pods that wait for a planner to lift their gate; told by every replica, whoever leads."
)
OLDEST_GATE_SECONDS: Final = Gauge(
    "outrider_oldest_gate_seconds", "How long the pod that was gated first has waited; told by every replica."
)
