"""PodGroups: Kubernetes' own (scheduling.k8s.io), and those of other gang schedulers, which all look alike."""

from outrider.api.core import Owner
from outrider.api.meta import Resource


class GangPolicy(Resource, frozen=True, kw_only=True):
    """Pods that must be schedulable at the same time."""

    min_count: int = 0


class PodGroupPolicy(Resource, frozen=True, kw_only=True):
    """How the group is scheduled; without ``gang`` its pods need not run together."""

    gang: GangPolicy | None = None


class TopologyConstraint(Resource, frozen=True, kw_only=True):
    """Node label whose value all pods of the group must share."""

    key: str = ""


class PodGroupConstraints(Resource, frozen=True, kw_only=True):
    """Where the group may go."""

    topology: list[TopologyConstraint] = []


class PodGroupSpec(Resource, frozen=True, kw_only=True):
    """The group."""

    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: PodGroupConstraints | None = None
    priority: int | None = None


class PodGroup(Owner, frozen=True, kw_only=True):
    """A PodGroup of Kubernetes (KEP-4671)."""

    spec: PodGroupSpec = PodGroupSpec()


class MemberGroupSpec(Resource, frozen=True, kw_only=True):
    """The group."""

    min_member: int | None = None


class MemberGroup(Owner, frozen=True, kw_only=True):
    """What the PodGroups below have in common."""

    spec: MemberGroupSpec = MemberGroupSpec()


class CoschedulingPodGroup(MemberGroup, frozen=True, kw_only=True):
    """A scheduling.x-k8s.io/v1alpha1 PodGroup (scheduler-plugins)."""


class KaiPodGroup(MemberGroup, frozen=True, kw_only=True):
    """A scheduling.run.ai/v2alpha2 PodGroup (KAI)."""


class VolcanoPodGroup(MemberGroup, frozen=True, kw_only=True):
    """A scheduling.volcano.sh/v1beta1 PodGroup (Volcano)."""
