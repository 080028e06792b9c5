"""Every probe of the agent: importing a probe's module registers it."""

from node_agent.probes import gpus, kernel_log

__all__ = ["gpus", "kernel_log"]
