"""One training job of each kind and way of starting that its controller knows, on nodes of eight GPUs.

For the recorded pods of tests/workloads/pods and for tests with the controllers themselves.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from testbed.kwok import TAINT
from testbed.kwok_stages import ENDLESS

Object = dict[str, Any]

LEAF: Final = "network.topology.nvidia.com/leaf"
_GPUS: Final = "nvidia.com/gpu"
_TOLERATION: Final = {"key": TAINT["key"], "operator": "Exists"}
_KEPT: Final = {"annotations": {ENDLESS: "true"}}
_SELECTOR: Final = {"type": "kwok"}


class Example(msgspec.Struct, frozen=True):
    """A job: its object, and the pods that its controller makes of it."""

    kind: str
    """Kind in lower case: the folder of its recording."""

    variant: str
    """How it is started, or what is special; the file's name."""

    body: Object

    pods: int
    """Pods once all run."""

    operators: tuple[str, ...] = ()
    """Controllers that it needs beyond Kubernetes' own."""

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.body["metadata"]["name"])


def template(*, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A pod template of one container; its pods run on simulated nodes until they are deleted."""
    resources = {"limits": {_GPUS: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "train:1", "command": ["train"], "resources": resources}
    own = {"nodeSelector": _SELECTOR, "tolerations": [_TOLERATION], "containers": [container]}
    return {"metadata": {**_KEPT, "labels": dict(labels or {})}, "spec": own | spec}


def _named(template_: Object, name: str) -> Object:
    """The template with its container named as the controller wants it."""
    template_["spec"]["containers"][0]["name"] = name
    return template_


def _object(api_version: str, kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def job(variant: str = "indexed", size: int = 4) -> Example:
    """A batch Job: Indexed, or plain, whose pods are independent."""
    mode = {"indexed": "Indexed", "plain": "NonIndexed"}[variant]
    spec = _job_spec(size) | {"completionMode": mode}
    return Example("job", variant, _object("batch/v1", "Job", f"job-{variant}", spec), size)


def _job_spec(size: int, gpus: int = 8) -> Object:
    # A deleted pod counts as failed; only without a limit is a Job sure to replace it.
    return {
        "parallelism": size,
        "completions": size,
        "backoffLimit": 2**31 - 1,
        "template": template(gpus=gpus, restartPolicy="Never"),
    }


def stateful_set(variant: str = "parallel", size: int = 3) -> Example:
    """A StatefulSet that makes its pods at once, or each when the one before is Ready."""
    policy = {"parallel": "Parallel", "ordered": "OrderedReady"}[variant]
    labels = {"app": f"set-{variant}"}
    spec = {
        "replicas": size,
        "serviceName": "set",
        "podManagementPolicy": policy,
        "selector": {"matchLabels": labels},
        "template": template(labels=labels),
    }
    body = _object("apps/v1", "StatefulSet", f"set-{variant}", spec)
    return Example("statefulset", variant, body, size)


def job_set(variant: str = "replicas") -> Example:
    """A JobSet of two jobs of two pods; or those each alone under a leaf; or a leader and workers that wait for it."""
    jobs = [{"name": "workers", "replicas": 2, "template": {"spec": _job_spec(2)}}]
    metadata: Object = {}
    spec: Object = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 3}}
    if variant == "exclusive":
        metadata = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": LEAF}}
    elif variant in {"depends-on", "in-order"}:
        leader = {"name": "leader", "replicas": 1, "template": {"spec": _job_spec(1)}}
        workers = {"name": "workers", "replicas": 1, "template": {"spec": _job_spec(3)}}
        if variant == "depends-on":
            workers["dependsOn"] = [{"name": "leader", "status": "Ready"}]
        else:
            spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        spec["replicatedJobs"] = [leader, workers]
    body = _object("jobset.x-k8s.io/v1alpha2", "JobSet", f"jobset-{variant}", spec, **metadata)
    return Example("jobset", variant, body, 4, ("jobset",))


def leader_worker_set(variant: str = "created", *, restart: str = "RecreateGroupOnPodRestart") -> Example:
    """A LeaderWorkerSet of two groups of four; workers come with their leader, or once it is Ready or bound."""
    policy = "LeaderReady" if variant == "leader-ready" else "LeaderCreated"
    group = {"size": 4, "workerTemplate": template(), "restartPolicy": restart}
    metadata: Object = {}
    if variant == "leader-template":
        group["leaderTemplate"] = template(gpus=0)
    if variant == "exclusive":
        metadata = {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": LEAF}}
    spec = {"replicas": 2, "startupPolicy": policy, "leaderWorkerTemplate": group}
    body = _object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", f"lws-{variant}", spec, **metadata)
    return Example("leaderworkerset", variant, body, 8, ("lws",))


def pytorch_job(variant: str = "master") -> Example:
    """A PyTorchJob of a master and three workers, or of three to five elastic workers."""
    workers = {"replicas": 3, "restartPolicy": "OnFailure", "template": _named(template(), "pytorch")}
    spec: Object = {"pytorchReplicaSpecs": {"Worker": workers}}
    if variant == "elastic":
        spec["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 5, "rdzvBackend": "c10d", "maxRestarts": 100}
    else:
        master = {"replicas": 1, "restartPolicy": "OnFailure", "template": _named(template(), "pytorch")}
        spec["pytorchReplicaSpecs"]["Master"] = master
    body = _object("kubeflow.org/v1", "PyTorchJob", f"pytorch-{variant}", spec)
    pods = 3 if variant == "elastic" else 4
    return Example("pytorchjob", variant, body, pods, ("training-operator",))


def tf_job() -> Example:
    """A TFJob of a chief without GPUs, a parameter server without GPUs and three workers."""
    counts = {"Chief": (1, 0), "PS": (1, 0), "Worker": (3, 8)}
    roles = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": _named(template(gpus=gpus), "tensorflow")}
        for role, (count, gpus) in counts.items()
    }
    body = _object("kubeflow.org/v1", "TFJob", "tf-roles", {"tfReplicaSpecs": roles})
    return Example("tfjob", "roles", body, 5, ("training-operator",))


def jax_job() -> Example:
    """A JAXJob of three workers."""
    worker = {"replicas": 3, "restartPolicy": "OnFailure", "template": _named(template(), "jax")}
    body = _object("kubeflow.org/v1", "JAXJob", "jax-workers", {"jaxReplicaSpecs": {"Worker": worker}})
    return Example("jaxjob", "workers", body, 3, ("training-operator",))


def mpi_job(variant: str = "at-startup") -> Example:
    """An MPIJob of three workers; its launcher comes with them, or once they are Ready, or has GPUs of its own."""
    launcher = {"replicas": 1, "template": template(gpus=8 if variant == "launcher-works" else 0)}
    spec = {
        "slotsPerWorker": 8,
        "launcherCreationPolicy": "WaitForWorkersReady" if variant == "workers-ready" else "AtStartup",
        "mpiReplicaSpecs": {"Launcher": launcher, "Worker": {"replicas": 3, "template": template()}},
    }
    if variant == "launcher-works":
        spec["runLauncherAsWorker"] = True
    body = _object("kubeflow.org/v2beta1", "MPIJob", f"mpi-{variant}", spec)
    return Example("mpijob", variant, body, 4, ("mpi-operator",))


def train_job(variant: str = "torch") -> Example:
    """A TrainJob of three nodes on the torch or the DeepSpeed runtime of Trainer's own manifests."""
    jobs = {"torch": ("node",), "deepspeed": ("launcher", "node")}[variant]
    override = {
        "targetJobs": [{"name": name} for name in jobs],
        "metadata": _KEPT,
        "spec": {"nodeSelector": _SELECTOR, "tolerations": [_TOLERATION]},
    }
    spec = {
        "runtimeRef": {"name": f"{variant}-distributed"},
        "trainer": {"numNodes": 3, "numProcPerNode": 8, "resourcesPerNode": {"limits": {_GPUS: "8"}}},
        "podTemplateOverrides": [override],
    }
    body = _object("trainer.kubeflow.org/v1alpha1", "TrainJob", f"train-{variant}", spec)
    return Example("trainjob", variant, body, 3, ("jobset", "trainer"))


def ray_cluster(variant: str = "workers") -> Example:
    """A RayCluster of a head without GPUs and three workers, or two workers of two hosts each."""
    replicas, hosts = (2, 2) if variant == "multi-host" else (3, 1)
    body = _object("ray.io/v1", "RayCluster", f"ray-{variant}", _ray_spec(replicas, hosts))
    return Example("raycluster", variant, body, 1 + replicas * hosts, ("kuberay",))


def ray_job() -> Example:
    """A RayJob with a cluster of a head and two workers, whose dashboard nobody serves here."""
    spec = {"entrypoint": "python train.py", "rayClusterSpec": _ray_spec(2, 1)}
    return Example("rayjob", "workers", _object("ray.io/v1", "RayJob", "ray-job", spec), 3, ("kuberay",))


def _ray_spec(replicas: int, hosts: int) -> Object:
    head = _named(template(gpus=0), "ray-head")
    group = {
        "groupName": "gpu",
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 10,
        "numOfHosts": hosts,
        "rayStartParams": {},
        "template": _named(template(), "ray-worker"),
    }
    return {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": head},
        "workerGroupSpecs": [group],
    }


EXAMPLES: Final[tuple[Example, ...]] = (
    job("indexed"),
    job("plain"),
    stateful_set("parallel"),
    stateful_set("ordered"),
    *map(job_set, ("replicas", "exclusive", "depends-on", "in-order")),
    *map(leader_worker_set, ("created", "leader-ready", "exclusive", "leader-template")),
    pytorch_job("master"),
    pytorch_job("elastic"),
    tf_job(),
    jax_job(),
    *map(mpi_job, ("at-startup", "workers-ready", "launcher-works")),
    train_job("torch"),
    train_job("deepspeed"),
    ray_cluster("workers"),
    ray_cluster("multi-host"),
    ray_job(),
)


def gated(example: Example, gate: str) -> Example:
    """The example with a scheduling gate in every pod template: none of its pods is scheduled."""
    return msgspec.structs.replace(example, body=_gated(example.body, {"name": gate}))


def _gated(value: Any, gate: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_gated(inner, gate) for inner in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _gated(each, gate) for name, each in value.items()}
    # A pod's spec, or TrainJob's override of one, is what tolerates the simulated nodes.
    return inner | {"schedulingGates": [gate]} if "tolerations" in inner else inner
