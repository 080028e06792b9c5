"""Every probe of the agent: importing a probe's module registers it."""

from node_agent.probes import checks, dcgm, dcgm_diag, gpus, kernel_log, kubelet, overrides

__all__ = ["checks", "dcgm", "dcgm_diag", "gpus", "kernel_log", "kubelet", "overrides"]
