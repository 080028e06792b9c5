"""From pods to jobs, gangs, ranks and the resources they ask for. Pure."""

from outrider.workloads.gangs import Size, gang_of, gated, job_uid_of, rank_of, size_of
from outrider.workloads.policies import policy_for, problem
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import GPU, gpus_of, requests_of

__all__ = [
    "GPU",
    "BadQuantity",
    "Size",
    "gang_of",
    "gated",
    "gpus_of",
    "job_uid_of",
    "milli",
    "policy_for",
    "problem",
    "rank_of",
    "requests_of",
    "size_of",
]
