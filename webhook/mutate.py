"""What Outrider adds to a training pod at admission. Pure: pod and policies in, JSON patch and warnings out.

Idempotent by structure: each piece is looked for by name before it is added, so that a second call (reinvocation after
another webhook) adds nothing, and what came back with defaults or token mounts is recognised.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from outrider import __version__
from outrider.api.core import Pod
from outrider.api.names import (
    GANG_GATE,
    IGNORE_LABEL,
    INJECTED_ANNOTATION,
    INPOD_DIR,
    INPOD_INIT_CONTAINER,
    INPOD_VOLUME,
    JOB_UID_LABEL,
    SCHEDULER_NAME,
    TRACEPARENT_ANNOTATION,
)
from outrider.api.trainingpolicy import Elastic, TrainingPolicy
from outrider.telemetry.traces import job_traceparent
from outrider.workloads import doubts, gang_of, may_be_gated, policy_for
from webhook.draft import Draft, Operation
from webhook.environment import Facts, environment
from webhook.view import ContainerView, PodView

_MIRROR: Final = "kubernetes.io/config.mirror"  # static pods' copies; their spec can't change
_DEFAULT_SCHEDULERS: Final = ("", "default-scheduler")
_COMMAND: Final = ["python3", "-m", "inpod.install", INPOD_DIR]
_GROUP_ENVIRONMENT: Final = ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")
_USER: Final = 65532  # any user but root; the pod's own choice comes first
# Equal requests and limits keep a Guaranteed pod Guaranteed. The pod's request is the larger of ours and the sum of
# its containers', so a GPU pod pays nothing. Copying nine small files takes about 60 ms of CPU.
_RESOURCES: Final = {"cpu": "250m", "memory": "64Mi"}


class NotUnderstood(ValueError):
    """The object is not a pod as the API server would write it; the message names the field."""


@dataclass(frozen=True)
class Mutation:
    """Operations of the JSON patch, and warnings for whoever created the pod."""

    patch: list[Operation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Context:
    """What is known beside the pod. ``request_uid`` identifies the trace of a pod without a job.

    ``scheduler_name`` is the scheduler that asks our extender.
    """

    namespace: str
    request_uid: str
    image: str
    policies: Sequence[TrainingPolicy] = ()
    scheduler_name: str = SCHEDULER_NAME


def mutate(pod: Mapping[str, Any], context: Context) -> Mutation:
    """Return the changes to ``pod``, which stays as it is. Raises NotUnderstood."""
    try:
        view, typed = msgspec.convert(pod, PodView), msgspec.convert(_without_nulls(pod), Pod)
        if not _is_ours(view):
            return Mutation()
    except ValueError as error:  # ValidationError, BadQuantity
        raise NotUnderstood(str(error)) from error
    policy = policy_for(context.policies, context.namespace, view.labels)
    if not policy.inject:
        return Mutation()
    if foreign := _foreign(view):
        return Mutation(warnings=[f"pod left unchanged: {foreign}; rename it to use Outrider"])
    return _Change(pod, view, typed, context, policy.elastic).run()


def trace_of(pod: Mapping[str, Any], request_uid: str) -> str:
    """Return the trace context that belongs to the pod: what it carries, else its job's, else one of its own.

    Raises NotUnderstood.
    """
    try:
        return _trace_of(msgspec.convert(_without_nulls(pod), Pod), request_uid)
    except ValueError as error:
        raise NotUnderstood(str(error)) from error


def _trace_of(pod: Pod, request_uid: str) -> str:
    owner = pod.metadata.controller()
    return pod.metadata.annotations.get(TRACEPARENT_ANNOTATION) or job_traceparent(owner.uid if owner else request_uid)


def _within(pod: Pod, namespace: str) -> Pod:
    """Return the pod with its namespace, which a hand-made review may leave out: gangs are told apart by it."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))


def _without_nulls(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata and spec without null members: Go writes some, and they mean absent."""
    return {part: _present(pod[part]) for part in ("metadata", "spec") if pod.get(part) is not None}


def _present(value: Any) -> Any:
    return {name: inner for name, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def _is_ours(view: PodView) -> bool:
    ignored = view.labels.get(IGNORE_LABEL) == "true" or _MIRROR in view.annotations
    return not ignored and view.spec.has_gpu


def _foreign(view: PodView) -> str:
    """Return what of the user's stands where ours should, empty if nothing does."""
    spec, injected = view.spec, INJECTED_ANNOTATION in view.annotations
    for volume in spec.volumes or []:
        if volume.name == INPOD_VOLUME and not (injected and volume.empty_dir is not None):
            return f"it has a volume named {INPOD_VOLUME} of its own"
    for container in spec.init_containers or []:
        if container.name == INPOD_INIT_CONTAINER and not (injected and container.command == _COMMAND):
            return f"it has an init container named {INPOD_INIT_CONTAINER} of its own"
    for container in spec.containers:
        if any(_normal(m.mount_path) == INPOD_DIR and m.name != INPOD_VOLUME for m in container.volume_mounts or []):
            return f"container {container.name} mounts something else at {INPOD_DIR}"
    return ""


def _normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


class _Change:
    """One run: collects the patch from the parts below, each of which adds what is absent."""

    def __init__(self, pod: Mapping[str, Any], view: PodView, typed: Pod, context: Context, elastic: Elastic) -> None:
        self._draft = Draft(pod)
        self._view = view
        self._typed = _within(typed, context.namespace)
        self._context = context
        self._gang = gang_of(self._typed)
        self._trace = _trace_of(typed, context.request_uid)
        self._facts = Facts(self._trace, self._gang.uid if self._gang else "", elastic)
        self._warnings: list[str] = []

    def run(self) -> Mutation:
        self._metadata()
        self._scheduling()
        self._volume()
        self._init_container()
        for index, container in self._training_containers():
            self._mount(index, container)
            self._environment(index, container)
        return Mutation(self._draft.patch, self._warnings)

    def _metadata(self) -> None:
        wanted = {TRACEPARENT_ANNOTATION: self._trace, INJECTED_ANNOTATION: __version__}
        for name, value in wanted.items():
            if name not in self._view.annotations:
                self._draft.put(("metadata", "annotations", name), value)
        if self._gang and JOB_UID_LABEL not in self._view.labels:
            self._draft.put(("metadata", "labels", JOB_UID_LABEL), self._gang.uid)

    def _scheduling(self) -> None:
        spec = self._view.spec
        if spec.node_name:
            return  # bound already; a gate beside a node name is refused
        ours = self._context.scheduler_name
        if spec.scheduler_name in _DEFAULT_SCHEDULERS:
            if ours not in _DEFAULT_SCHEDULERS:
                self._draft.put(("spec", "schedulerName"), ours)
        elif spec.scheduler_name != ours:
            self._warnings.append(
                f"schedulerName {spec.scheduler_name} stays: Outrider watches this pod but does not place it"
            )
            return
        if may_be_gated(self._typed) and not any(gate.name == GANG_GATE for gate in spec.scheduling_gates or []):
            self._draft.append(("spec", "schedulingGates"), {"name": GANG_GATE})
        self._warnings += doubts(self._typed)

    def _volume(self) -> None:
        if not any(volume.name == INPOD_VOLUME for volume in self._view.spec.volumes or []):
            self._draft.append(("spec", "volumes"), {"name": INPOD_VOLUME, "emptyDir": {}})

    def _init_container(self) -> None:
        spec = self._view.spec
        if not any(container.name == INPOD_INIT_CONTAINER for container in spec.init_containers or []):
            pod_user = spec.security_context.run_as_user if spec.security_context else None
            env = _group_environment(spec.containers)
            self._draft.append(("spec", "initContainers"), _init_container(self._context.image, pod_user) | env)

    def _training_containers(self) -> Iterator[tuple[int, ContainerView]]:
        """Sidecars (proxies, log shippers) hold no GPU and stay as they are."""
        return ((index, c) for index, c in enumerate(self._view.spec.containers) if c.has_gpu)

    def _mount(self, index: int, container: ContainerView) -> None:
        mounts = container.volume_mounts or []
        if not any(_normal(mount.mount_path) == INPOD_DIR for mount in mounts):
            mount = {"name": INPOD_VOLUME, "mountPath": INPOD_DIR}
            self._draft.append(("spec", "containers", index, "volumeMounts"), mount)

    def _environment(self, index: int, container: ContainerView) -> None:
        changes = environment(container, self._facts)
        path = ("spec", "containers", index, "env")
        for entry in changes.added:
            self._draft.append(path, entry)
        for position, value in changes.replaced.items():
            self._draft.put((*path, position, "value"), value)
        self._warnings.extend(changes.warnings)


def _group_environment(containers: Sequence[ContainerView]) -> dict[str, Any]:
    """Return what LeaderWorkerSet's webhook puts into every container, where it has been here before us.

    It also acts on updates (lws pkg/webhooks/pod_webhook.go) and would add it to a container without it. The API server
    then refuses the update: the one that lifts our gate.
    """
    entries = [e for c in containers[:1] for e in c.env or [] if e.name in _GROUP_ENVIRONMENT and e.value is not None]
    return {"env": [{"name": entry.name, "value": entry.value} for entry in entries]} if entries else {}


def _init_container(image: str, pod_user: int | None) -> dict[str, Any]:
    """Return the init container; it passes the restricted Pod Security Standard in every namespace."""
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "name": INPOD_INIT_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": _COMMAND,
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
        "securityContext": security if pod_user else security | {"runAsUser": _USER},
        "volumeMounts": [{"name": INPOD_VOLUME, "mountPath": INPOD_DIR}],
    }
