"""Next steps of one gang in a small cluster: elastic and staged jobs, and what a step leaves behind."""

import msgspec

from outrider.api.core import Pod, PodStatus, PodTemplate
from outrider.api.gangplacement import GangPlacement
from outrider.api.kubeflow import ElasticPolicy, MPIJob, PyTorchJob, ReplicaSpec, TrainingJobSpec
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.workloads import gang_of
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.planner.deliver import placement_with
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import NOW, RULES, make_node, make_pod, make_world

NODES = [make_node(f"n{number}") for number in range(4)]
TEMPLATE = PodTemplate(spec=make_pod("template").spec)


def replica(kind: str, role: str, index: int, **kwargs: object) -> Pod:
    """Return a pod as training-operator makes it, or as mpi-operator does."""
    pod = make_pod(f"train-{role}-{index}", **kwargs)
    mpi = {"operator-name": "mpi-operator", "job-name": "train", "job-role": role, "replica-index": str(index)}
    ours = {"replica-type": role, "replica-index": str(index)}
    labels = {f"training.kubeflow.org/{name}": value for name, value in (mpi if kind == "MPIJob" else ours).items()}
    owner = OwnerReference(api_version="kubeflow.org/v1", kind=kind, name="train", uid="train", controller=True)
    gates = make_pod("gated", job="any").spec.scheduling_gates if not pod.spec.node_name else []
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, labels=pod.metadata.labels | labels, owner_references=[owner]),
        spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates),
    )


def elastic(workers: int = 4, least: int = 2) -> PyTorchJob:
    """Return an elastic job."""
    roles = {"Worker": ReplicaSpec(replicas=workers, template=TEMPLATE)}
    spec = TrainingJobSpec(pytorch_replica_specs=roles, elastic_policy=ElasticPolicy(min_replicas=least))
    return PyTorchJob(metadata=ObjectMeta(name="train", namespace="ml", uid="train"), spec=spec)


def staged(workers: int = 2) -> MPIJob:
    """Return a job whose launcher comes once its workers are Ready."""
    roles = {
        "Launcher": ReplicaSpec(replicas=1, template=TEMPLATE),
        "Worker": ReplicaSpec(replicas=workers, template=TEMPLATE),
    }
    spec = TrainingJobSpec(mpi_replica_specs=roles, launcher_creation_policy="WaitForWorkersReady")
    return MPIJob(metadata=ObjectMeta(name="train", namespace="ml", uid="train"), spec=spec)


def step(*objects: object, owner: object = None, rules: Rules = RULES, now: float = NOW, **kwargs: object) -> Advance:
    """Return the next step of the gang "train" in a world of these objects."""
    world = make_world(*NODES, *[one for one in objects if not isinstance(one, PyTorchJob | MPIJob)], rules=rules)
    if owner is not None:
        world.on_job(None, owner)
    uid = next(
        gang.uid for one in objects if isinstance(one, Pod) and "train" in one.metadata.name if (gang := gang_of(one))
    )
    gang = world.gang(uid)
    assert gang is not None
    return advance(gang, world.publish(), rules, now, **kwargs)


def stored(advanced: Advance, pods: list[Pod], owner: object) -> GangPlacement:
    """Return the placement as it is after the step."""
    assert advanced.status is not None
    world = make_world(*pods)
    world.on_job(None, owner)
    gang = world.gang(gang_of(pods[0]).uid)
    wanted = placement_with(gang, advanced.size, advanced.status)
    return msgspec.structs.replace(wanted, metadata=msgspec.structs.replace(wanted.metadata, uid="placement"))


def busy(*nodes: str) -> list[Pod]:
    """Return single pods that fill the nodes."""
    return [make_pod(f"busy-{node}", node=node) for node in nodes]


def bound(pod: Pod, node: str, phase: str = "Running") -> Pod:
    """Return the pod as kube-scheduler and kubelet leave it."""
    spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
    return msgspec.structs.replace(pod, spec=spec, status=PodStatus(phase=phase))
