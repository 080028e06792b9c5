"""What `outrider check` asks the cluster. Every question is answered by a value or by the words of its failure."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from outrider.api import names
from outrider.api.admission import MutatingWebhookConfiguration
from outrider.api.coordination import Lease
from outrider.api.core import Node, Pod
from outrider.api.gpunode import GPUNode
from outrider.cli.resources import (
    CONFIGMAPS,
    NAMESPACES,
    OURS,
    ConfigMap,
    Namespace,
)
from outrider.kube.client import Client, Page, Selector
from outrider.kube.errors import KubeError, NotFound
from outrider.kube.kinds import (
    GANGPLACEMENTS,
    GPUNODES,
    LEASES,
    NODES,
    PODS,
    REMEDIATIONS,
    TRAININGPOLICIES,
    WEBHOOK_CONFIGURATIONS,
    Kind,
)
from outrider.words import one_line

T = TypeVar("T")

LEASE_NAMES: Final = (names.SCHEDULER_LEASE, names.PLANNER_LEASE, names.REMEDIATION_LEASE)
OUR_KINDS: Final[tuple[Kind[Any], ...]] = (GPUNODES, GANGPLACEMENTS, REMEDIATIONS, TRAININGPOLICIES)
_ENABLED: Final = f"{names.ENABLED_LABEL}=true"


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A value, or why there is none."""

    value: T | None = None
    problem: str = ""


@dataclass(frozen=True)
class Trial:
    """A pod that was only tried, not created: did the webhook change it?"""

    namespace: str
    changed: bool


@dataclass(frozen=True)
class Evidence:
    """All answers; ``now`` in seconds since 1970."""

    now: float
    release_namespace: str
    kinds: dict[str, Answer[Page[Any]]]
    configuration: Answer[MutatingWebhookConfiguration]
    trial: Answer[Trial]
    leases: dict[str, Answer[Lease]]
    component_pods: Answer[Page[Pod]]
    nodes: Answer[Page[Node]]
    gpu_nodes: Answer[Page[GPUNode]]
    job_pods: Answer[Page[Pod]]
    remediation_config: Answer[ConfigMap]


async def gather(client: Client, trying: Client, release_namespace: str, now: float) -> Evidence:
    """Ask everything at once. ``trying`` is a dry-run client: what it creates is only checked."""
    ours = Selector(namespace=release_namespace, labels=OURS)
    kinds = dict(zip((kind.plural for kind in OUR_KINDS), await _each(client, OUR_KINDS), strict=True))
    leases = [_ask(client.get(LEASES, name, release_namespace)) for name in LEASE_NAMES]
    configuration, trial, component_pods, nodes, job_pods, config = await asyncio.gather(
        _ask(client.get(WEBHOOK_CONFIGURATIONS, names.WEBHOOK_CONFIGURATION)),
        _ask(try_pod(client, trying)),
        _ask(client.list(PODS, ours)),
        _ask(client.list(NODES)),
        _ask(client.list(PODS, Selector(labels=names.JOB_UID_LABEL))),
        _ask(client.get(CONFIGMAPS, names.REMEDIATION_CONFIG, release_namespace)),
    )
    return Evidence(
        now=now,
        release_namespace=release_namespace,
        kinds=kinds,
        configuration=configuration,
        trial=trial,
        leases=dict(zip(LEASE_NAMES, await asyncio.gather(*leases), strict=True)),
        component_pods=component_pods,
        nodes=nodes,
        gpu_nodes=kinds[GPUNODES.plural],
        job_pods=job_pods,
        remediation_config=config,
    )


async def _each(client: Client, kinds: tuple[Kind[Any], ...]) -> list[Answer[Page[Any]]]:
    return await asyncio.gather(*(_ask(client.list(kind)) for kind in kinds))


async def _ask(question: Coroutine[Any, Any, T]) -> Answer[T]:
    try:
        return Answer(await question)
    except NotFound:
        return Answer(problem="not found in the cluster")
    except KubeError as error:
        return Answer(problem=one_line(error))


async def try_pod(client: Client, trying: Client) -> Trial:
    """Send a GPU pod through admission in an enabled namespace without creating it. Raises KubeError."""
    enabled = (await client.list(NAMESPACES, Selector(labels=_ENABLED))).items
    if not enabled:
        return Trial("", changed=False)
    namespace = _first(enabled)
    pod = await trying.create(PODS, trial_pod(), namespace)
    return Trial(namespace, names.INJECTED_ANNOTATION in pod.metadata.annotations)


def _first(namespaces: list[Namespace]) -> str:
    return min(namespace.metadata.name for namespace in namespaces)


def trial_pod() -> dict[str, Any]:
    """Return a pod that asks for one GPU and that every pod security level admits."""
    secure = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    limits = {"nvidia.com/gpu": "1", "cpu": "1m", "memory": "1Mi"}
    container = {"name": "trial", "image": "trial", "securityContext": secure, "resources": {"limits": limits}}
    return {"metadata": {"generateName": "outrider-check-"}, "spec": {"containers": [container]}}
