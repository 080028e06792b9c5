"""RayCluster, which RayJobs and RayServices run on. Labels: kuberay controllers/ray/utils/constant.go."""

from typing import Final

from outrider.api.core import Pod
from outrider.api.raycluster import RayCluster, WorkerGroupSpec
from outrider.workloads.kinds.family import Family, Place, controlled_by, number
from outrider.workloads.kinds.roles import Role

_GROUP: Final = "ray.io/group"
_REPLICA_INDEX: Final = "ray.io/worker-group-replica-index"  # with several hosts per replica only
_HOST_INDEX: Final = "ray.io/replica-host-index"
_HEAD: Final = "headgroup"  # what KubeRay calls the head's group
_OWNERS: Final = {("ray.io", "RayCluster"): RayCluster}


def _place(pod: Pod) -> Place:
    """Return the pod's group; Ray numbers its pods only where a replica has several hosts."""
    labels = pod.metadata.labels
    group = labels.get(_GROUP, "")
    replica = number(labels.get(_REPLICA_INDEX))
    if group == _HEAD:
        return Place(group, 0)
    return Place(group) if replica is None else Place(group, number(labels.get(_HOST_INDEX)), replica)


def _roles(cluster: RayCluster) -> tuple[Role, ...]:
    elastic = bool(cluster.spec.enable_in_tree_autoscaling)
    head = Role(_HEAD, 1, cluster.spec.head_group_spec.template)
    return (head, *(_workers(group, elastic=elastic) for group in cluster.spec.worker_group_specs))


def _workers(group: WorkerGroupSpec, *, elastic: bool) -> Role:
    """Return a group's workers; the autoscaler may take all but minReplicas away, nobody else does.

    Replicas stay within their bounds, as in KubeRay's GetWorkerGroupDesiredReplicas.
    """
    low = group.min_replicas or 0
    wanted = max(low if group.replicas is None else group.replicas, low)
    replicas = wanted if group.max_replicas is None else min(wanted, group.max_replicas)
    hosts = max(group.num_of_hosts, 1)
    pods = 0 if group.suspend else max(replicas, 0) * hosts
    least = min(low * hosts, pods) if elastic else None
    return Role(group.group_name, pods, group.template, least=least, block=hosts)


RAY: Final = Family(
    owners=_OWNERS,
    gang=lambda pod: controlled_by(pod, _OWNERS),
    place=_place,
    roles=_roles,
)
