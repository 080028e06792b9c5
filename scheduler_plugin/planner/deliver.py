"""Writes of the planner: the placement, then the pods. Each is conditional, so that repeating one harms nothing."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, GangPlacementStatus
from outrider.api.meta import Condition, ObjectMeta
from outrider.api.names import GANG_GATE, RETRY_ANNOTATION, TRACEPARENT_ANNOTATION, WHY_ANNOTATION
from outrider.api.times import rfc3339
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound, Unreachable
from outrider.kube.kinds import GANGPLACEMENTS, PODS
from outrider.telemetry import traces
from outrider.workloads import GangRef, owner_reference
from scheduler_plugin.cluster.members import GangState
from scheduler_plugin.metrics import UNGATED_PODS
from scheduler_plugin.placing.constraints import required_terms

_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 32  # requests in flight: as many as the client lets through at a time
_NAME_MAX: Final = 253  # characters of an object's name; apimachinery's DNS-1123 subdomain
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WHY_PATH: Final = f"/metadata/annotations/{WHY_ANNOTATION.replace('/', '~1')}"

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Patch = list[dict[str, Any]]


def placement_with(gang: GangState, size: int, status: GangPlacementStatus) -> GangPlacement:
    """Return the gang's placement with a new status: the known one, or one that is still to be created."""
    if gang.placement is not None:
        return msgspec.structs.replace(gang.placement, status=status)
    owner = owner_reference(gang.job, gang.owner)
    owners = [owner] if owner else []
    return GangPlacement(
        metadata=ObjectMeta(name=placement_name(gang.job), namespace=gang.namespace, owner_references=owners),
        spec=GangPlacementSpec(
            job_kind=gang.job.kind,
            job_name=gang.job.name,
            job_uid=gang.job.uid,
            size=size,
            owned=bool(owners),
        ),
        status=status,
    )


async def write_placement(client: Client, wanted: GangPlacement) -> GangPlacement:
    """Write a placement and return it as stored.

    Raises Conflict where another planner, or a person, changed it since it was read: nothing is written then.
    """
    there = wanted if wanted.metadata.uid else await _created(client, wanted)
    stored = msgspec.structs.replace(there, status=wanted.status)
    return await client.replace(GANGPLACEMENTS, there.metadata.name, stored, there.metadata.namespace, "status")


async def _created(client: Client, wanted: GangPlacement) -> GangPlacement:
    name, namespace = wanted.metadata.name, wanted.metadata.namespace
    try:
        return await client.create(GANGPLACEMENTS, wanted, namespace)
    except AlreadyExists:
        there = await client.get(GANGPLACEMENTS, name, namespace)
        if there.spec.job_uid == wanted.spec.job_uid:
            raise Conflict(f"{namespace}/{name} exists and is not in the cache yet") from None
        await client.delete(GANGPLACEMENTS, name, namespace, there.metadata.uid)
        return await client.create(GANGPLACEMENTS, wanted, namespace)


def placement_name(gang: GangRef) -> str:
    """Return the name of a gang's placement: readable, valid whatever the gang is called, and one per gang.

    Where kind and name are not all of that (a group of several, another API's Job, a long name), the UID makes it so.
    """
    plain = "-".join(part for part in (gang.kind, gang.name, gang.part) if part).lower()
    foreign = gang.kind == "Job" and gang.group != "batch"
    if gang.owned and not foreign and len(plain) <= _NAME_MAX and _NAME.fullmatch(plain):
        return plain
    unique = f"-{gang.uid}"[-_NAME_MAX:].lower()
    return re.sub(r"[^a-z0-9]+", "-", plain[: _NAME_MAX - len(unique)] + unique).strip("-")


async def say_accepted(client: Client, placement: GangPlacement, condition: Condition) -> None:
    """Write the condition, unless the placement changed since it was read. Raises KubeError."""
    meta = placement.metadata
    others = [one for one in placement.status.conditions if one.type != condition.type]
    body = {
        "metadata": {"resourceVersion": meta.resource_version},
        "status": {"conditions": msgspec.to_builtins([*others, condition])},
    }
    try:
        await client.patch(GANGPLACEMENTS, meta.name, body, PatchType.MERGE, meta.namespace, "status")
    except (NotFound, Conflict) as error:
        _LOG.info("condition not written", extra={"placement": f"{meta.namespace}/{meta.name}", "problem": str(error)})


async def release(client: Client, pods: Iterable[tuple[Pod, Sequence[str]]], why: str) -> list[Pod]:
    """Pin each pod to its nodes and lift its gate, in one request; return the pods as stored.

    A pod that changed meanwhile (its gate is gone, or it is another pod of that name) is left as it is: its own watch
    event brings the gang up again.
    """
    stored = await _each(pods, lambda entry: _release(client, entry[0], entry[1], why))
    return [pod for pod in stored if pod is not None]


async def _release(client: Client, pod: Pod, nodes: Sequence[str], why: str) -> Pod | None:
    with traces.span(
        "planner.ungate", pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""), pod=pod.key, node=nodes[0]
    ):
        try:
            stored = await _patched(client, pod, release_patch(pod, nodes, why), PatchType.JSON)
        except (Invalid, NotFound, Conflict) as error:
            _LOG.info("gate not lifted", extra={"pod": pod.key, "problem": str(error)})
            return None
    UNGATED_PODS.inc()
    return stored


async def _patched(client: Client, pod: Pod, patch: object, patch_type: PatchType) -> Pod:
    return await client.patch(PODS, pod.metadata.name, patch, patch_type, pod.metadata.namespace)


def release_patch(pod: Pod, nodes: Sequence[str], why: str) -> Patch:
    """Return the JSON patch that pins a pod and lifts its gate; its tests fail where either was done before."""
    gate = next(index for index, gate in enumerate(pod.spec.scheduling_gates) if gate.name == GANG_GATE)
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{gate}/name", "value": GANG_GATE},
        *_pin(pod, nodes),
        *_note(pod, why),
        {"op": "remove", "path": f"/spec/schedulingGates/{gate}"},
    ]


def _pin(pod: Pod, nodes: Sequence[str]) -> Patch:
    affinity = dict(pod.spec.affinity)
    unchanged: Patch = [{"op": "test", "path": "/spec/affinity", "value": pod.spec.affinity}] if affinity else []
    own = required_terms(affinity)
    terms = [_only(node) for node in nodes] if own is None else [_and_only(term, nodes[0]) for term in own]
    nodes_of_pod = affinity.get("nodeAffinity") or {}
    # Among planned node and spares, kube-scheduler should take the planned one even while the extender is away.
    wish = {"weight": 100, "preference": _only(nodes[0])}
    affinity["nodeAffinity"] = {
        **nodes_of_pod,
        _REQUIRED: {"nodeSelectorTerms": terms},
        _PREFERRED: [*(nodes_of_pod.get(_PREFERRED) or []), wish],
    }
    return [*unchanged, {"op": "add", "path": "/spec/affinity", "value": affinity}]


def _only(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def _and_only(term: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Narrow a term of the user's: a gated pod's terms may get requirements, but no further terms (KEP-3838)."""
    return {**term, "matchFields": [*(term.get("matchFields") or []), *_only(node)["matchFields"]]}


def _note(pod: Pod, why: str) -> Patch:
    if pod.metadata.annotations:
        return [{"op": "add", "path": _WHY_PATH, "value": why}]
    return [{"op": "add", "path": "/metadata/annotations", "value": {WHY_ANNOTATION: why}}]


async def tell(client: Client, pods: Iterable[Pod], why: str) -> None:
    """Write on each pod why it waits. A pod that is gone is skipped."""
    silent = [pod for pod in pods if pod.metadata.annotations.get(WHY_ANNOTATION) != why]
    await _each(silent, lambda pod: _annotate(client, pod, WHY_ANNOTATION, why))


async def retry(client: Client, pods: Iterable[Pod], now: float) -> None:
    """Make kube-scheduler try pods again that it put aside, by a change of each; ``now`` in seconds since 1970."""
    await _each(pods, lambda pod: _annotate(client, pod, RETRY_ANNOTATION, rfc3339(now)))


async def _annotate(client: Client, pod: Pod, name: str, value: str) -> None:
    patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {name: value}}}
    try:
        await _patched(client, pod, patch, PatchType.MERGE)
    except (NotFound, Conflict, Invalid) as error:
        _LOG.info("annotation not written", extra={"pod": pod.key, "annotation": name, "problem": str(error)})


async def _each(items: Iterable[Any], work: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """Do the work on every item, a few at a time; the first failure is raised once the others have ended.

    Items that come after one which did not reach the API server are left for the next try, with None as result.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    failures: list[KubeError] = []

    async def one(item: Any) -> Any:
        async with turns:
            if any(isinstance(failure, Unreachable) for failure in failures):
                return None
            try:
                return await work(item)
            except KubeError as error:
                failures.append(error)
                return None

    results = await asyncio.gather(*map(one, items))
    if failures:
        raise failures[0]
    return results
