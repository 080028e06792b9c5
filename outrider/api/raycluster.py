"""RayCluster (ray.io/v1), in the fields that tell a gang's size. RayJobs run on a RayCluster of their own."""

from outrider.api.core import Owner, PodTemplate
from outrider.api.meta import Resource


class HeadGroupSpec(Resource, frozen=True, kw_only=True):
    """The head."""

    template: PodTemplate = PodTemplate()


class WorkerGroupSpec(Resource, frozen=True, kw_only=True):
    """Workers of one kind; each replica has ``num_of_hosts`` pods."""

    group_name: str = ""
    suspend: bool | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    template: PodTemplate = PodTemplate()


class RayClusterSpec(Resource, frozen=True, kw_only=True):
    """Head and workers."""

    enable_in_tree_autoscaling: bool | None = None
    head_group_spec: HeadGroupSpec = HeadGroupSpec()
    worker_group_specs: list[WorkerGroupSpec] = []


class RayCluster(Owner, frozen=True, kw_only=True):
    """A RayCluster."""

    spec: RayClusterSpec = RayClusterSpec()
