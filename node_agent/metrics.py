"""Metrics of the node agent, in base units."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

PROBE_SECONDS: Final = Histogram(
    "outrider_agent_probe_duration_seconds",
    "Time that one reading of a probe took.",
    ["probe"],
    buckets=(0.001, 0.01, 0.1, 1, 10),
)
PROBE_SUCCESS: Final = Gauge("outrider_agent_probe_success", "1 where the last reading of a probe worked.", ["probe"])
NVML_CHILD_STARTS: Final = Counter(
    "outrider_agent_nvml_child_starts_total", "Starts of the NVML child process; more than one means hangs or failures."
)
KERNEL_RECORDS: Final = Counter(
    "outrider_agent_kernel_log_records_total",
    "Kernel log records read: kernel (looked at), user (ignored), garbage (not a record), lost (overwritten unread).",
    ["kind"],
)
GPU_SCORE: Final = Gauge("outrider_gpu_score", "Health of a GPU, 0 (do not use) to 100.", ["uuid"])
NIC_SCORE: Final = Gauge("outrider_nic_score", "Health of a network adapter, 0 (do not use) to 100.", ["nic"])
NODE_SCORE: Final = Gauge("outrider_node_score", "Health of the node's GPUs, 0 (do not use) to 100.")
NODE_VERDICT: Final = Gauge("outrider_node_verdict", "1 for the verdict that holds.", ["verdict"])
FINDINGS: Final = Gauge(
    "outrider_agent_findings",
    "Findings that stand, by code; codes that no row of the catalogue knows as other.",
    ["code"],
)
PUBLISHED: Final = Counter("outrider_agent_publications_total", "Writes of the node's health, by outcome.", ["outcome"])
RANK_FILE_ERRORS: Final = Counter(
    "outrider_agent_rank_file_errors_total", "Beacons and checkpoint answers in pods that could not be used."
)
