"""What people name on the command line: a pod, or a job of any kind by its pods. Pure."""

from collections.abc import Iterable

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement
from outrider.workloads import gang_of, job_uid_of


class Target(msgspec.Struct, frozen=True):
    """A name, and its kind where people gave one: NAME, pod/NAME, job/NAME, pytorchjob/NAME."""

    name: str
    kind: str = ""

    def __str__(self) -> str:
        """Return the target as people wrote it."""
        return f"{self.kind}/{self.name}" if self.kind else self.name

    @property
    def may_be_pod(self) -> bool:
        """False where it is surely something else."""
        return self.kind in ("", "pod", "pods", "po")

    def has(self, pod: Pod) -> bool:
        """Return whether the target is this pod, or a job that owns it, over any number of owners."""
        if self.may_be_pod and pod.metadata.name == self.name:
            return True
        gang = gang_of(pod)
        owners = [(owner.kind, owner.name) for owner in pod.metadata.owner_references]
        return any(self._is(kind, name) for kind, name in [*owners, *([(gang.kind, gang.name)] if gang else [])])

    def is_job_of(self, placement: GangPlacement) -> bool:
        """Return whether the placement is of this job."""
        return self._is(placement.spec.job_kind, placement.spec.job_name)

    def _is(self, kind: str, name: str) -> bool:
        wanted = self.kind.lower()
        return name == self.name and wanted in ("", kind.lower(), f"{kind.lower()}s")


def target_of(text: str) -> Target:
    """Return what a command-line argument names. Raises ValueError that says how to write it."""
    kind, slash, name = text.rpartition("/")
    if "/" in kind or (slash and not (kind and name)) or not text:
        raise ValueError(f"'{text}': write NAME or KIND/NAME, and the namespace with -n")
    return Target(name, kind.lower())


def uids_of(target: Target, namespace: str, pods: Iterable[Pod], placements: Iterable[GangPlacement]) -> list[str]:
    """Return the UIDs of the gangs that the target has: a job may have several."""
    uids = [plan.spec.job_uid for plan in placements if plan.metadata.namespace == namespace and target.is_job_of(plan)]
    for pod in pods:
        if pod.metadata.namespace == namespace and target.has(pod):
            gang = gang_of(pod)
            uids.append(job_uid_of(pod) or (gang.uid if gang else ""))
    return list(dict.fromkeys(filter(None, uids)))
