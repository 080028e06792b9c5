"""Labels of the testbed's nodes: GPUs as NVIDIA's discovery names them, and where the node stands."""

import msgspec

from outrider.api.names import RACK_LABEL
from testbed.errors import TestbedError

_REAL_PER_LEAF = 2
_KWOK_PER_LEAF = 16
_KWOK_PER_SPINE = 128
_KWOK_PER_CORE = 512
_PER_CLIQUE = 18
_FIRST_KWOK_LEAF = 100
_CLUSTER_UUID = "5f3a1c52-6d0e-4c8b-9a41-0b6f2a7e9d10"


class Profile(msgspec.Struct, frozen=True):
    """What a node of a profile carries."""

    product: str
    gpus: int
    has_cliques: bool = False
    """Whether nodes share an NVLink domain beyond themselves (label nvidia.com/gpu.clique)."""


PROFILES = {
    "h100": Profile("NVIDIA-H100-80GB-HBM3", 8),
    "gb200": Profile("NVIDIA-GB200", 4, has_cliques=True),
}


def profile(name: str) -> Profile:
    """Profile of that name.

    Raises:
        TestbedError: there is none.
    """
    if name in PROFILES:
        return PROFILES[name]
    message = f"--profile {name!r} is unknown: use one of {', '.join(PROFILES)}"
    raise TestbedError(message)


def real(profile_name: str, index: int) -> dict[str, str]:
    """Labels of real node gpu-INDEX: two nodes a leaf and a rack, all under one spine of one core group."""
    leaf = index // _REAL_PER_LEAF
    return _labels(profile_name, core=0, spine=0, leaf=leaf, index=index)


def simulated(profile_name: str, index: int) -> dict[str, str]:
    """Labels of node kwok-INDEX: 16 nodes a leaf, 8 leaves a spine, 4 spines a core, apart from the real nodes'."""
    return _labels(
        profile_name,
        core=1 + index // _KWOK_PER_CORE,
        spine=1 + index // _KWOK_PER_SPINE,
        leaf=_FIRST_KWOK_LEAF + index // _KWOK_PER_LEAF,
        index=index,
        first_clique=100,
    )


def _labels(
    profile_name: str, *, core: int, spine: int, leaf: int, index: int, first_clique: int = 0
) -> dict[str, str]:
    gpu = profile(profile_name)
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": gpu.product,
        "nvidia.com/gpu.count": str(gpu.gpus),
        "topology.kubernetes.io/zone": "zone-a",
        "network.topology.nvidia.com/core": f"core-{core}",
        "network.topology.nvidia.com/spine": f"spine-{spine}",
        "network.topology.nvidia.com/leaf": f"leaf-{leaf}",
        RACK_LABEL: f"rack-{leaf}",
    }
    if gpu.has_cliques:
        labels["nvidia.com/gpu.clique"] = f"{_CLUSTER_UUID}.{first_clique + index // _PER_CLIQUE}"
    return labels
