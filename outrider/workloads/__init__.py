"""From pods to jobs, gangs, ranks and the resources they ask for. Pure."""

from outrider.workloads.asks import topology_ask
from outrider.workloads.gangs import (
    OwnerKey,
    doubts,
    gang_of,
    job_uid_of,
    key_of_owner,
    may_be_gated,
    owner_key,
    owns,
    priority_of,
    rank_of,
    role_of,
    seats_of,
    segment_of,
    size_of,
    stage_of,
)
from outrider.workloads.membership import awaited, gated, is_member, placed_by_us
from outrider.workloads.model import BEFORE, NO_SEGMENT, GangRef, Seat, Size, owner_reference
from outrider.workloads.policies import policy_for, policy_of, problem
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import GPU, GPU_RESOURCES, gpus_in, gpus_of, is_gpu, requests_of

__all__ = [
    "BEFORE",
    "GPU",
    "GPU_RESOURCES",
    "NO_SEGMENT",
    "BadQuantity",
    "GangRef",
    "OwnerKey",
    "Seat",
    "Size",
    "awaited",
    "doubts",
    "gang_of",
    "gated",
    "gpus_in",
    "gpus_of",
    "is_gpu",
    "is_member",
    "job_uid_of",
    "key_of_owner",
    "may_be_gated",
    "milli",
    "owner_key",
    "owner_reference",
    "owns",
    "placed_by_us",
    "policy_for",
    "policy_of",
    "priority_of",
    "problem",
    "rank_of",
    "requests_of",
    "role_of",
    "seats_of",
    "segment_of",
    "size_of",
    "stage_of",
    "topology_ask",
]
