"""LeaderWorkerSet (leaderworkerset.x-k8s.io/v1), in the fields that tell a gang's size and order."""

from outrider.api.core import Owner, PodTemplate
from outrider.api.meta import Resource


class SubGroupPolicy(Resource, frozen=True, kw_only=True):
    """Parts of a group that belong together."""

    sub_group_policy_type: str | None = None
    sub_group_size: int | None = None


class LeaderWorkerTemplate(Resource, frozen=True, kw_only=True):
    """One group: ``size`` pods, the leader included. Without a template of its own the leader is like a worker."""

    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    size: int | None = None
    sub_group_policy: SubGroupPolicy | None = None


class LeaderWorkerSetSpec(Resource, frozen=True, kw_only=True):
    """Groups of the set."""

    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()
    startup_policy: str = ""


class LeaderWorkerSet(Owner, frozen=True, kw_only=True):
    """A LeaderWorkerSet."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()
