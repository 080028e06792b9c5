"""What the demo sees of the cluster at one moment, read from API objects and pod logs. Nothing here asks Outrider."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from outrider.api import names
from testbed.api import Api
from testbed.errors import TestbedError

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_GROUP = f"/apis/{names.GROUP}/{names.VERSION}"


class PodView(msgspec.Struct, frozen=True):
    """One worker of the job."""

    name: str
    uid: str
    index: int
    node: str
    phase: str
    gated: bool
    ready: bool
    restarts: int
    ending: bool
    checkpoint_request: str


class NodeView(msgspec.Struct, frozen=True):
    """One node: Outrider's opinion of its GPUs, and whether new work is kept away."""

    score: int
    verdict: str
    reason: str
    message: str
    taint: str | None
    gpus: int
    """GPUs that the kubelet would give to pods."""


class EpisodeView(msgspec.Struct, frozen=True):
    """One Remediation: state and proof by step name."""

    node: str
    phase: str
    steps: dict[str, tuple[str, str]]
    checkpoint_step: int


class StepLine(msgspec.Struct, frozen=True):
    """One line that the training script printed."""

    step: int
    loss: float
    resumed_from: int
    unix: float


class View(msgspec.Struct, frozen=True):
    """One moment."""

    nodes: dict[str, NodeView] = {}
    pods: dict[str, PodView] = {}
    """Workers by UID."""
    revision: int = 0
    """Revision of the job's placement; 0 before the first plan."""
    placement: dict[int, str] = {}
    """Planned node by rank."""
    episodes: dict[str, EpisodeView] = {}


def read(api: Api, namespace: str, job: str) -> View:
    """Read everything but the logs.

    Raises:
        TestbedError: the API server refused.
        OSError: it does not answer.
    """
    pods = _items(api, f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name%3D{job}")
    revision, placement = _placement(_items(api, f"{_GROUP}/namespaces/{namespace}/gangplacements"), job)
    return View(
        nodes=_nodes(_items(api, "/api/v1/nodes"), _items(api, f"{_GROUP}/gpunodes")),
        pods={pod.uid: pod for pod in map(_pod, pods)},
        revision=revision,
        placement=placement,
        episodes={e["metadata"]["name"]: _episode(e) for e in _items(api, f"{_GROUP}/remediations")},
    )


def read_lines(api: Api, namespace: str, pod: str) -> list[StepLine]:
    """Lines of the training script in the pod's log; empty while it has none, or once the pod is gone."""
    status, text = api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines=150")
    return parse_lines(text) if status == 200 and isinstance(text, str) else []


def parse_lines(log: str) -> list[StepLine]:
    """The script's own lines among whatever else a container prints."""
    found = []
    for line in log.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=StepLine))
        except msgspec.MsgspecError:
            continue
    return found


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    status, answer = api.call("GET", path)
    if status == 404:  # before the chart is installed there is no such kind
        return []
    if status != 200:
        raise TestbedError(f"GET {path}: {status} {json.dumps(answer)[:300]}")
    return answer["items"] or []


def _pod(pod: Mapping[str, Any]) -> PodView:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    containers = status.get("containerStatuses", [])
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        index=int(meta.get("labels", {}).get(INDEX_LABEL, -1)),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        gated=bool(spec.get("schedulingGates")),
        ready=bool(containers) and all(c["ready"] for c in containers),
        restarts=sum(c["restartCount"] for c in containers),
        ending="deletionTimestamp" in meta,
        checkpoint_request=meta.get("annotations", {}).get(names.CHECKPOINT_REQUEST_ANNOTATION, ""),
    )


def _nodes(nodes: Iterable[Mapping[str, Any]], gpu_nodes: Iterable[Mapping[str, Any]]) -> dict[str, NodeView]:
    status = {g["metadata"]["name"]: g.get("status", {}) for g in gpu_nodes}
    return {name: _node(node, status.get(name, {})) for node in nodes if (name := node["metadata"]["name"])}


def _node(node: Mapping[str, Any], gpus: Mapping[str, Any]) -> NodeView:
    taints = node["spec"].get("taints", [])
    return NodeView(
        score=gpus.get("score", 0),
        verdict=gpus.get("verdict", "none"),
        reason=gpus.get("reason", ""),
        message=gpus.get("message", ""),
        taint=next((t.get("value", "") for t in taints if t["key"] == names.UNHEALTHY_TAINT), None),
        gpus=int(node["status"].get("allocatable", {}).get("nvidia.com/gpu", 0)),
    )


def _placement(placements: Iterable[Mapping[str, Any]], job: str) -> tuple[int, dict[int, str]]:
    for placement in placements:
        if placement["spec"]["jobName"] == job:
            status = placement.get("status", {})
            return status.get("revision", 0), {r["rank"]: r["node"] for r in status.get("ranks", [])}
    return 0, {}


def _episode(episode: Mapping[str, Any]) -> EpisodeView:
    status = episode.get("status", {})
    return EpisodeView(
        node=episode["spec"].get("node", ""),
        phase=status.get("phase", ""),
        steps={s["name"]: (s["state"], s.get("proof", "")) for s in status.get("steps", [])},
        checkpoint_step=max((job.get("checkpointStep", -1) for job in status.get("jobs", [])), default=-1),
    )
