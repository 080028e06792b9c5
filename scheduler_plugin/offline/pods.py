"""From a manifest to the pods and owners that the API server and Outrider's webhook would make of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.api.core import Job, JobSpec, NamedReference, Owner, Pod
from outrider.api.meta import ObjectMeta
from outrider.api.names import GANG_GATE, IGNORE_LABEL, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.words import listed, plural
from outrider.workloads import BadQuantity, gang_of, gpus_of, may_be_gated
from scheduler_plugin.offline.controllers import COMPLETION_INDEX, Draft, drafts, owner_of, unfolded
from scheduler_plugin.offline.documents import BadManifest, Document, documents
from scheduler_plugin.offline.saved import owner_kinds

_DEFAULT_SCHEDULERS: Final = ("", "default-scheduler", SCHEDULER_NAME)


class Hypothesis(msgspec.Struct, frozen=True):
    """What the manifest would add to the cluster. Of ``pods`` those of a gang carry its gate."""

    owners: tuple[Owner, ...]
    pods: tuple[Pod, ...]
    notes: tuple[str, ...]


def hypothesis(text: str, namespace: str, now: float) -> Hypothesis:
    """Return what a manifest would add at ``now`` (seconds since 1970); ``namespace`` for objects that name none.

    Raises BadManifest.
    """
    found = unfolded(documents(text))
    made, without = drafts(found)
    homes = {one.name: one.part("metadata").text("namespace") or namespace for one in found}
    fallback = homes[found[0].name]
    pods = [_admitted(_pod(one, _home(one, homes, fallback), now)) for one in made]
    owners = [owner for one in found if (owner := _owner(one, homes[one.name], now))]
    return Hypothesis((*owners, *_child_jobs(pods, owners)), tuple(pods), tuple(_notes(pods, without)))


def _child_jobs(pods: Sequence[Pod], known: Sequence[Owner]) -> Iterator[Job]:
    """Yield the Jobs that other controllers make on the way to the pods, as JobSet does."""
    there = {one.metadata.uid for one in known}
    made = [(owner, pod) for pod in pods if (owner := pod.metadata.controller()) and owner.kind == "Job"]
    for uid in dict.fromkeys(
        owner.uid for owner, _ in made if owner.uid not in there and owner.api_version == "batch/v1"
    ):
        theirs = [(owner, pod) for owner, pod in made if owner.uid == uid]
        owner, pod = theirs[0]
        meta = ObjectMeta(name=owner.name, namespace=pod.metadata.namespace, uid=uid, labels=pod.metadata.labels)
        mode = "Indexed" if COMPLETION_INDEX in pod.metadata.labels else "NonIndexed"
        size = len(theirs)
        yield Job(metadata=meta, spec=JobSpec(parallelism=size, completions=size, completion_mode=mode))


def _home(draft: Draft, homes: Mapping[str, str], fallback: str) -> str:
    return homes.get(draft.owner.name if draft.owner else draft.name, fallback)


def _owner(document: Document, namespace: str, now: float) -> Owner | None:
    """Return the object as the planner reads it, None for a kind that it doesn't follow."""
    group, name = document.group_kind
    kind = next((one for one in owner_kinds() if (one.group, one.name) == (group, name)), None)
    if kind is None:
        return None
    meta = {"name": document.name, "namespace": namespace, "uid": owner_of(document).uid}
    body = {**document.body, "metadata": {**document.part("metadata").body, **meta, "creationTimestamp": rfc3339(now)}}
    owner: Owner = _read(_spelled(body), kind.struct, document.where)
    return owner


def _pod(draft: Draft, namespace: str, now: float) -> Pod:
    meta, owner = draft.template.part("metadata"), draft.owner
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name} if owner else {}
    body = {
        "metadata": {
            "name": draft.name,
            "namespace": namespace,
            "uid": f"{owner.uid if owner else namespace}/{draft.name}",
            "labels": {**meta.part("labels").body, **draft.labels},
            "annotations": {**meta.part("annotations").body, **draft.annotations},
            "creationTimestamp": rfc3339(now),
            "ownerReferences": [{**reference, "uid": owner.uid, "controller": True}] if owner else [],
        },
        "spec": draft.template.needed("spec").body,
        "status": {"phase": "Pending"},
    }
    pod: Pod = _read(_spelled(body), Pod, draft.template.where)
    return pod


def _admitted(pod: Pod) -> Pod:
    """Return the pod as the webhook leaves it: GPU pods go to our scheduler, those of gangs with our gate alone."""
    if not ours(pod):
        return pod
    gang = gang_of(pod)
    labels = pod.metadata.labels | ({JOB_UID_LABEL: gang.uid} if gang else {})
    gates = [NamedReference(name=GANG_GATE)] if may_be_gated(pod) else []
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, labels=labels),
        spec=msgspec.structs.replace(pod.spec, scheduler_name=SCHEDULER_NAME, scheduling_gates=gates),
    )


def ours(pod: Pod) -> bool:
    """Return whether Outrider would place the pod. Raises BadManifest."""
    if pod.metadata.labels.get(IGNORE_LABEL) == "true" or pod.spec.scheduler_name not in _DEFAULT_SCHEDULERS:
        return False
    try:
        return gpus_of(pod) > 0
    except BadQuantity as error:
        raise BadManifest(f"pod {pod.metadata.name}: {error}") from None


def _notes(pods: Sequence[Pod], without: Sequence[str]) -> list[str]:
    notes = [f"{listed(without, 4)}: makes no pods that are planned here"] if without else []
    others = [pod.metadata.name for pod in pods if not ours(pod)]
    if others:
        whose = f"{plural(len(others), 'pod')} without GPUs, or for another scheduler"
        notes.append(f"{whose}, not placed by Outrider: {listed(others, 4)}")
    return notes


def _read(body: Mapping[str, Any], kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadManifest(f"{where}: {error}") from None


def _spelled(value: Any) -> Any:
    """Return the value with quantities as text and without nulls, as the API server gives them back."""
    if isinstance(value, list):
        return [_spelled(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _texts(inner) if name in ("requests", "limits", "overhead") else _spelled(inner)
        for name, inner in value.items()
        if inner is not None
    }


def _texts(amounts: Any) -> Any:
    if not isinstance(amounts, dict):
        return amounts
    return {name: str(amount) if isinstance(amount, int | float) else amount for name, amount in amounts.items()}
