"""The pods of the cluster, by node: what those on it take, and which are on their way to it."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from outrider.api.core import Pod
from outrider.workloads import BadQuantity, gang_of
from scheduler_plugin.cluster.guests import Guest, guest_of
from scheduler_plugin.cluster.members import amounts_of, gone
from scheduler_plugin.cluster.nodes import Amounts

_LOG: Final = logging.getLogger(__name__)


class Pods:
    """All pods by UID, of whatever scheduler and owner, and the sums over those of each node."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._asked: dict[str, Amounts] = {}
        self._guests: dict[str, Guest] = {}
        self._bound: defaultdict[str, set[str]] = defaultdict(set)
        self._nominated: defaultdict[str, set[str]] = defaultdict(set)  # node -> UIDs of pods that preempt there
        self._uses: dict[str, dict[str, Amounts]] = {}  # what a node's bound pods take, kept until one of them changes

    def __iter__(self) -> Iterator[Pod]:
        """Yield every pod."""
        return iter(self._pods.values())

    def get(self, uid: str) -> Pod | None:
        """Return a pod, None where it is not known."""
        return self._pods.get(uid)

    def keep(self, pod: Pod) -> None:
        """Take a pod that is not known yet."""
        uid = pod.metadata.uid
        self._pods[uid] = pod
        self._asked[uid] = _asked(pod)
        self._guests[uid] = guest_of(pod, self._asked[uid])
        if nominated := _nominated(pod):
            self._nominated[nominated].add(uid)
        if pod.spec.node_name and not pod.finished:
            self._bound[pod.spec.node_name].add(uid)
            self._uses.pop(pod.spec.node_name, None)

    def forget(self, uid: str) -> Pod | None:
        """Return the pod as it was known, and know it no more."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        del self._asked[uid], self._guests[uid]
        if nominated := _nominated(pod):
            self._nominated[nominated].discard(uid)
        self._bound.get(pod.spec.node_name, set()).discard(uid)
        self._uses.pop(pod.spec.node_name, None)
        return pod

    def asked(self, uid: str) -> Amounts:
        """Return what a known pod asks for, in thousandths."""
        return self._asked[uid]

    def guest(self, uid: str) -> Guest:
        """Return what a known pod means for others."""
        return self._guests[uid]

    def guests(self, node: str, planned: Iterable[str]) -> tuple[Guest, ...]:
        """Return the pods on a node, and those coming to it, as others there meet them."""
        uids = {*self._bound.get(node, ()), *self.coming(node, planned)}
        return tuple(self._guests[uid] for uid in sorted(uids))

    def coming(self, node: str, planned: Iterable[str]) -> list[str]:
        """Return the UIDs of unbound pods that are ``planned`` (by UID) or nominated for a node, each once."""
        uids = dict.fromkeys((*planned, *self._nominated.get(node, ())))
        return [uid for uid in uids if _unbound(self._pods.get(uid))]

    def uses(self, node: str) -> dict[str, Amounts]:
        """Return what the pods bound to a node take, by gang UID (empty: pods of no gang), in thousandths."""
        uses = self._uses.get(node)
        if uses is None:
            sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for uid in self._bound.get(node, ()):
                gang = gang_of(self._pods[uid])
                sums[gang.uid if gang else ""].update(self._asked[uid])
            uses = self._uses[node] = {gang: dict(amounts) for gang, amounts in sums.items()}
        return uses


def nodes_of(pod: Pod) -> tuple[str, str]:
    """Return the node that a pod is bound to, and the one that it is nominated for; empty where there is none."""
    return pod.spec.node_name, _nominated(pod)


def _nominated(pod: Pod) -> str:
    """Return the node that preemption makes room on for a pod that is not there yet, empty without one."""
    return "" if pod.spec.node_name or gone(pod) else pod.status.nominated_node_name


def _unbound(pod: Pod | None) -> bool:
    return pod is not None and not pod.spec.node_name and not gone(pod)


def _asked(pod: Pod) -> Amounts:
    try:
        return amounts_of(pod)
    except BadQuantity as error:
        _LOG.warning("pod counts as taking nothing", extra={"pod": pod.key, "problem": str(error)})
        return {}
