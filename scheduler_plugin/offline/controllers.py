"""The pods that controllers would make of a manifest: names, labels and owners as they set them. Pure.

Sources: batch/v1 Job controller; JobSet pkg/controllers/jobset_controller.go; LeaderWorkerSet pkg/controllers and its
pod webhook; training-operator pkg/controller.v1 and its labels; mpi-operator v2beta1; KubeRay
ray-operator/controllers/ray/common/pod.go; StatefulSet controller; Volcano pkg/controllers/job/helpers.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.words import listed
from scheduler_plugin.offline.documents import MOST_PODS, BadManifest, Document

Labels = Mapping[str, str]
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_UIDS: Final = uuid.UUID("0a4c9be0-6f35-5b8e-9d0c-6f6666706c6e")  # of objects that exist in a manifest only


class Owner(msgspec.Struct, frozen=True):
    """The object that controls a pod."""

    api_version: str
    kind: str
    name: str

    @property
    def uid(self) -> str:
        """A UID that no object of the API server has."""
        return str(uuid.uuid5(_UIDS, "\0".join((self.api_version.rpartition("/")[0], self.kind, self.name))))


class Draft(msgspec.Struct, frozen=True):
    """A pod to be: its template, and what its controller adds. ``owner`` is None for a pod on its own."""

    name: str
    template: Document
    owner: Owner | None = None
    labels: Labels = {}
    annotations: Labels = {}


def unfolded(found: Sequence[Document]) -> list[Document]:
    """Return the objects with those that only wrap another one replaced by it: a TrainJob's JobSet, a RayJob's cluster.

    Raises BadManifest.
    """
    return [_WRAPPERS[one.group_kind](one, found) if one.group_kind in _WRAPPERS else one for one in found]


def drafts(found: Sequence[Document]) -> tuple[list[Draft], list[str]]:
    """Return the pods of all objects of a manifest, and the objects that make none. Raises BadManifest."""
    made: list[Draft] = []
    without = [one.where for one in found if one.group_kind not in _EXPAND]
    for document in found:
        for draft in _EXPAND.get(document.group_kind, _nothing)(document):
            made.append(draft)
            if len(made) > MOST_PODS:
                raise BadManifest(f"{document.where}: more than {MOST_PODS} pods: a gang holds no more")
    if not made:
        raise BadManifest(_fruitless(found, without))
    return made, without


def _fruitless(found: Sequence[Document], without: Sequence[str]) -> str:
    """Return why a manifest has no pods to place, and what to do about it."""
    empty = [one.where for one in found if one.where not in without]
    if empty:
        return f"{listed(empty, 4)}: has no pods as written: look at its replicas, and at how its lists are spelled"
    known = ", ".join(sorted({kind for _, kind in (*_EXPAND, *_WRAPPERS)}))
    return f"{listed(list(without), 4)}: makes no pods that are planned here; give one of {known}"


def _nothing(_: Document) -> Iterator[Draft]:
    return iter(())


def owner_of(document: Document) -> Owner:
    """Return the object as the owner of its pods. Raises BadManifest."""
    return Owner(document.text("apiVersion"), document.text("kind"), document.name)


def _pod(document: Document) -> Iterator[Draft]:
    document.needed("spec")
    yield Draft(document.name, document)


def _job(document: Document) -> Iterator[Draft]:
    yield from _job_pods(document.name, document.needed("spec"), {}, {})


def _job_pods(name: str, spec: Document, labels: Labels, annotations: Labels) -> Iterator[Draft]:
    parallelism = spec.count("parallelism", 1)
    completions = spec.count("completions", parallelism)
    indexed = spec.text("completionMode") == "Indexed"
    for index in range(min(parallelism, completions)):
        number = {COMPLETION_INDEX: str(index)} if indexed else {}
        made = {"job-name": name, "batch.kubernetes.io/job-name": name, **number, **labels}
        owner = Owner("batch/v1", "Job", name)
        yield Draft(f"{name}-{index}", spec.needed("template"), owner, made, {**number, **annotations})


def _jobset(document: Document) -> Iterator[Draft]:
    name, prefix, total = document.name, "jobset.sigs.k8s.io", 0
    notes = document.part("metadata", "annotations")
    exclusive = {key: notes.text(key) for key in notes.body if str(key).startswith("alpha.jobset.sigs.k8s.io/")}
    for role in document.needed("spec").parts("replicatedJobs"):
        replicas, called = role.count("replicas", 1), role.text("name")
        for index in range(replicas):
            labels = {
                f"{prefix}/jobset-name": name,
                f"{prefix}/jobset-uid": owner_of(document).uid,
                f"{prefix}/replicatedjob-name": called,
                f"{prefix}/replicatedjob-replicas": str(replicas),
                f"{prefix}/job-index": str(index),
                f"{prefix}/job-global-index": str(total),
                f"{prefix}/restart-attempt": "0",
            }
            total += 1
            job = role.needed("template", "spec")
            yield from _job_pods(f"{name}-{called}-{index}", job, labels, {**labels, **exclusive})


def _jobset_of(document: Document, found: Sequence[Document]) -> Document:
    """Return the JobSet that Trainer v2 makes of a TrainJob, by the runtime in the same manifest."""
    spec = document.needed("spec")
    wanted = spec.part("runtimeRef").text("name")
    runtimes = (one for one in found if one.group_kind[1] in ("ClusterTrainingRuntime", "TrainingRuntime"))
    runtime = next((one for one in runtimes if one.name == wanted), None)
    if runtime is None:
        way = f"kubectl get clustertrainingruntime {wanted or 'NAME'} -o yaml"
        raise BadManifest(f"{spec.where}.runtimeRef: put the runtime into the same manifest, after ---: {way}")
    template = runtime.needed("spec", "template", "spec")
    nodes = spec.part("trainer").count("numNodes", runtime.part("spec", "mlPolicy").count("numNodes", 1))
    resources = spec.part("trainer", "resourcesPerNode").body
    jobs = [_filled(one, nodes, resources) for one in template.parts("replicatedJobs")]
    filled = {**template.body, "replicatedJobs": jobs}
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", document, document.name, filled)


def _raycluster_of(document: Document, _: Sequence[Document]) -> Document:
    spec = document.needed("spec", "rayClusterSpec")
    return _object("ray.io/v1", "RayCluster", document, f"{document.name}-raycluster", spec.body)


def _object(api_version: str, kind: str, of: Document, name: str, spec: Mapping[str, Any]) -> Document:
    meta = {**of.part("metadata").body, "name": name}
    return Document({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}, of.where)


def _filled(role: Document, nodes: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a replicated job of a runtime as Trainer fills it: the trainer's own gets its nodes and resources."""
    template = role.needed("template")
    step = template.part("metadata", "labels").text("trainer.kubeflow.org/trainjob-ancestor-step")
    if step != "trainer" and not (not step and role.text("name") == "node"):
        return dict(role.body)
    spec = template.needed("spec")
    pod = spec.needed("template", "spec")
    containers = [
        {**one.body, "resources": resources}
        if resources and one.text("name") in ("node", "trainer")
        else dict(one.body)
        for one in pod.parts("containers")
    ]
    pods = {**spec.part("template").body, "spec": {**pod.body, "containers": containers}}
    job = {**spec.body, "parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "template": pods}
    return {**role.body, "template": {**template.body, "spec": job}}


def _leaderworkerset(document: Document) -> Iterator[Draft]:
    spec, name, prefix = document.needed("spec"), document.name, "leaderworkerset.sigs.k8s.io"
    workers = spec.needed("leaderWorkerTemplate")
    size = workers.count("size", 1)
    worker = workers.needed("workerTemplate")
    leader = workers.part("leaderTemplate")
    for group in range(spec.count("replicas", 1)):
        for index in range(size):
            labels = {
                f"{prefix}/name": name,
                f"{prefix}/group-index": str(group),
                f"{prefix}/worker-index": str(index),
            }
            notes = {f"{prefix}/size": str(size)}
            set_of = Owner("apps/v1", "StatefulSet", f"{name}-{group}" if index else name)
            called = f"{name}-{group}-{index}" if index else f"{name}-{group}"
            yield Draft(called, leader if leader.body and not index else worker, set_of, labels, notes)


def _training_operator(roles: str) -> Callable[[Document], Iterator[Draft]]:
    """Return the expansion of a kind of training-operator whose roles stand in that field."""

    def expand(document: Document) -> Iterator[Draft]:
        specs = document.needed("spec", roles)
        for role in specs.body:
            part = specs.part(str(role))
            for index in range(part.count("replicas", 1)):
                labels = {
                    "training.kubeflow.org/job-name": document.name,
                    "training.kubeflow.org/operator-name": f"{document.text('kind').lower()}-controller",
                    "training.kubeflow.org/replica-type": role.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                }
                called = f"{document.name}-{role.lower()}-{index}"
                yield Draft(called, part.needed("template"), owner_of(document), labels)

    return expand


def _mpijob(document: Document) -> Iterator[Draft]:
    """Expand v2beta1 of mpi-operator; v1 is training-operator's."""
    if document.text("apiVersion").endswith("/v1"):
        yield from _training_operator("mpiReplicaSpecs")(document)
        return
    specs, name = document.needed("spec", "mpiReplicaSpecs"), document.name
    labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": "mpi-operator"}
    workers = specs.part("Worker")
    for index in range(workers.count("replicas", 1) if workers.body else 0):
        own = {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": str(index)}
        yield Draft(f"{name}-worker-{index}", workers.needed("template"), owner_of(document), labels | own)
    launcher = Owner("batch/v1", "Job", f"{name}-launcher")
    role = {"training.kubeflow.org/job-role": "launcher"}
    yield Draft(launcher.name, specs.needed("Launcher", "template"), launcher, labels | role)


def _raycluster(document: Document) -> Iterator[Draft]:
    name, spec, owner = document.name, document.needed("spec"), owner_of(document)
    head = {"ray.io/cluster": name, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield Draft(f"{name}-head", spec.needed("headGroupSpec", "template"), owner, head)
    for group in spec.parts("workerGroupSpecs"):
        called = group.text("groupName")
        labels = {"ray.io/cluster": name, "ray.io/node-type": "worker", "ray.io/group": called}
        for index in range(group.count("replicas", group.count("minReplicas", 0)) * group.count("numOfHosts", 1)):
            yield Draft(f"{name}-{called}-worker-{index}", group.needed("template"), owner, labels)


def _statefulset(document: Document) -> Iterator[Draft]:
    spec = document.needed("spec")
    for index in range(spec.count("replicas", 1)):
        labels = {
            "apps.kubernetes.io/pod-index": str(index),
            "statefulset.kubernetes.io/pod-name": f"{document.name}-{index}",
        }
        yield Draft(f"{document.name}-{index}", spec.needed("template"), owner_of(document), labels)


def _volcano(document: Document) -> Iterator[Draft]:
    for task in document.needed("spec").parts("tasks"):
        called = task.text("name") or "default"
        for index in range(task.count("replicas", 1)):
            own = {
                "volcano.sh/job-name": document.name,
                "volcano.sh/task-spec": called,
                "volcano.sh/task-index": str(index),
            }
            yield Draft(f"{document.name}-{called}-{index}", task.needed("template"), owner_of(document), own, own)


_EXPAND: Final[Mapping[tuple[str, str], Callable[[Document], Iterator[Draft]]]] = {
    ("", "Pod"): _pod,
    ("batch", "Job"): _job,
    ("jobset.x-k8s.io", "JobSet"): _jobset,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leaderworkerset,
    ("kubeflow.org", "PyTorchJob"): _training_operator("pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _training_operator("tfReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _training_operator("xgbReplicaSpecs"),
    ("kubeflow.org", "PaddleJob"): _training_operator("paddleReplicaSpecs"),
    ("kubeflow.org", "JAXJob"): _training_operator("jaxReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _mpijob,
    ("ray.io", "RayCluster"): _raycluster,
    ("apps", "StatefulSet"): _statefulset,
    ("batch.volcano.sh", "Job"): _volcano,
}
_WRAPPERS: Final[Mapping[tuple[str, str], Callable[[Document, Sequence[Document]], Document]]] = {
    ("trainer.kubeflow.org", "TrainJob"): _jobset_of,
    ("ray.io", "RayJob"): _raycluster_of,
}
