"""Every probe of the agent: importing a probe's module registers it."""

from node_agent.probes import checks, cloud, dcgm, dcgm_diag, gpus, host, kernel_log, kubelet, nics, overrides

__all__ = [
    "checks",
    "cloud",
    "dcgm",
    "dcgm_diag",
    "gpus",
    "host",
    "kernel_log",
    "kubelet",
    "nics",
    "overrides",
]
