"""Gangs: which pods belong together, and the owners and policies that say what becomes of them."""

from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterator
from typing import Final

from outrider.api.core import Owner, Pod
from outrider.api.gangplacement import GangPlacement
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.workloads import (
    GangRef,
    OwnerKey,
    gang_of,
    is_member,
    key_of_owner,
    owner_key,
    owns,
    policy_of,
    priority_of,
)
from scheduler_plugin.cluster.members import GangState, gone

_FINE: Final = ("Running", "Succeeded")


class Gangs:
    """The pods of every gang that has any, by the gang's UID; owners and policies whether or not a gang has them."""

    def __init__(self) -> None:
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._owners: dict[OwnerKey, Owner] = {}
        self._owner_uids: set[str] = set()
        self._of_owner: defaultdict[OwnerKey, set[str]] = defaultdict(set)
        self._policies: dict[str, TrainingPolicy] = {}

    def __contains__(self, uid: str) -> bool:
        """Return whether the gang has pods."""
        return uid in self._pods

    def __iter__(self) -> Iterator[str]:
        """Yield the UIDs of the gangs that have pods."""
        return iter(self._pods)

    def pods(self, uid: str) -> Collection[Pod]:
        """Return the gang's pods, in no order."""
        return self._pods.get(uid, {}).values()

    def items(self) -> ItemsView[str, dict[str, Pod]]:
        """Return every gang's UID and its pods by their own."""
        return self._pods.items()

    def keep_pod(self, gang: GangRef, pod: Pod) -> bool:
        """Take a pod of a gang; return whether it is the first."""
        first = gang.uid not in self._pods
        self._pods[gang.uid][pod.metadata.uid] = pod
        if key := owner_key(gang, pod.metadata.namespace):
            self._of_owner[key].add(gang.uid)
        return first

    def forget_pod(self, gang: GangRef, pod: Pod) -> bool:
        """Drop a pod of a gang; return whether it was the last."""
        self._pods[gang.uid].pop(pod.metadata.uid, None)
        if self._pods[gang.uid]:
            return False
        del self._pods[gang.uid]
        if key := owner_key(gang, pod.metadata.namespace):
            self._of_owner[key].discard(gang.uid)
            if not self._of_owner[key]:
                del self._of_owner[key]
        return True

    def keep_owner(self, old: Owner | None, new: Owner | None) -> tuple[str, ...]:
        """Take a change of an owner; return the UIDs of the gangs that it is news for."""
        if old is not None:
            self._owners.pop(key_of_owner(old), None)
            self._owner_uids.discard(old.metadata.uid)
        if new is None:
            return ()
        self._owners[key_of_owner(new)] = new
        self._owner_uids.add(new.metadata.uid)
        return tuple(self._of_owner.get(key_of_owner(new), ()))

    def keep_policy(self, old: TrainingPolicy | None, new: TrainingPolicy | None) -> None:
        """Take a change of a policy."""
        if new is not None:
            self._policies[new.metadata.name] = new
        elif old is not None:
            self._policies.pop(old.metadata.name, None)

    def state(self, uid: str, placement: GangPlacement | None) -> GangState | None:
        """Return what is known about a gang with this placement, None while it has no pods."""
        pods = sorted(self.pods(uid), key=lambda pod: (pod.metadata.name, pod.metadata.uid))
        gang = next((gang for pod in pods if (gang := gang_of(pod))), None)
        if gang is None:
            return None
        namespace = pods[0].metadata.namespace
        owner = self._owner_of(gang, namespace)
        present = tuple(pod for pod in pods if is_member(pod) and (pod.status.phase == "Succeeded" or not gone(pod)))
        policy, differs = policy_of(self._policies.values(), namespace, present or pods)
        _, unequal = priority_of(present, owner)
        return GangState(
            job=gang,
            namespace=namespace,
            owner=owner,
            pods=present,
            placement=placement,
            policy=policy,
            notes=tuple(note for note in (differs, unequal) if note),
        )

    def _owner_of(self, gang: GangRef, namespace: str) -> Owner | None:
        key = owner_key(gang, namespace)
        owner = self._owners.get(key) if key else None
        return owner if owner is not None and owns(owner, gang) else None

    def orphaned(self, uid: str, placement: GangPlacement) -> bool:
        """Return whether a placement's job is not known and has no pods."""
        owners = {uid, *(owner.uid for owner in placement.metadata.owner_references)}
        return uid not in self._pods and not owners & self._owner_uids

    def works_elsewhere(self, uid: str, pod: Pod) -> bool:
        """Return whether other pods of the gang run, or ended well, on other nodes than this one's."""
        return any(one.spec.node_name != pod.spec.node_name and one.status.phase in _FINE for one in self.pods(uid))
