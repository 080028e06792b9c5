"""From NVML's numbers to evidence: which states of a snapshot are faults, and of which GPU. Pure.

One file for each subject; each yields what is bad in one look at a GPU. ``node.py`` puts them together.
"""

from node_agent.readings.nvml.look import COUNTERS_SOURCE, SOURCE
from node_agent.readings.nvml.node import BLIND_CODES, RELEASED, Readings, judge_snapshot

__all__ = ["BLIND_CODES", "COUNTERS_SOURCE", "RELEASED", "SOURCE", "Readings", "judge_snapshot"]
