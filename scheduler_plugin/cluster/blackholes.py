"""Nodes that swallow pods: they reject them, or kill them within seconds, and so look free for the next one. Pure.

A node whose device plugin or runtime is broken stays empty, so a scheduler sends it pod after pod (one such node
rejected 554 in 1 h 46 min: pytorch/ci-infra#1058). Failed pods are counted per node; above a threshold nothing new
goes there for a while. This decides about placement only. A job that fails on several nodes blames none of them.

What is counted comes from pods that the API server lists, so a restart counts them again.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from outrider.api.core import Pod, Termination
from outrider.api.times import parse_rfc3339

CRASHED: Final = "exited within seconds"
# Reasons of pods that the kubelet's admission turned away (kubelet.go, lifecycle/predicate.go, cm/admission).
_REJECTIONS: Final = frozenset(("UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "TopologyAffinityError"))
_OUT_OF: Final = "OutOf"  # then the resource: OutOfcpu, OutOfnvidia.com/gpu
# What a pod may have brought upon itself, with a program that ends at once or by naming its node: one job is no proof.
_DOUBTFUL: Final = frozenset((CRASHED, "NodeAffinity", "NodePorts"))
_INSTANT_SECONDS: Final = 10.0  # a container that ends sooner never began its work
_ALLOWED: Final = 2  # failures on one node within the window that mean nothing
_WINDOW_SECONDS: Final = 600.0
_CLOSED_SECONDS: Final = 600.0  # the first time; twice as long each time that it fails again
_LONGEST_CLOSED_SECONDS: Final = 3600.0
_PROBATION_SECONDS: Final = 3600.0  # after its return: one failure closes the node again
_BLAMED: Final = 2  # nodes that one job may blame: if it fails on more, it is the job's fault
_BLAMED_BY_DOUBT: Final = 1
_KEPT: Final = 4096  # failures remembered in all
_KEPT_PER_NODE: Final = 64
_SHOWN: Final = 3  # reasons


class Failure(msgspec.Struct, frozen=True):
    """One pod that a node failed. ``at`` in seconds since 1970; ``job`` is the UID of its gang, owner, or its own.

    ``reason`` is the kubelet's, or CRASHED. ``alone`` is true where pods of the same job ran elsewhere meanwhile.
    """

    node: str
    job: str
    at: float
    reason: str
    alone: bool = False

    @property
    def doubtful(self) -> bool:
        """True where it may be the pod's own fault."""
        return self.reason in _DOUBTFUL


class Closure(msgspec.Struct, frozen=True):
    """Nothing new is placed on a node until then (seconds since 1970); ``why`` is for people."""

    until: float
    why: str


def failure_of(pod: Pod, now: float, *, alone: bool, gang: str = "") -> Failure | None:
    """Return how the pod failed on its node, None where that says nothing about the node.

    The node's clock may be wrong: a failure is never later than ``now`` (seconds since 1970).
    """
    if not pod.spec.node_name:
        return None
    owner = pod.metadata.controller()
    job = gang or (owner.uid if owner else pod.metadata.uid)
    if pod.status.phase == "Failed" and _rejected(pod.status.reason):
        at = _seconds(pod.status.start_time) or _seconds(pod.metadata.creation_timestamp)
        return Failure(pod.spec.node_name, job, min(at, now), pod.status.reason, alone) if at else None
    crashes = [at for status in pod.status.container_statuses for at in _crash(status.state.terminated)]
    crashes += [at for status in pod.status.container_statuses for at in _crash(status.last_state.terminated)]
    return Failure(pod.spec.node_name, job, min(max(crashes), now), CRASHED, alone) if crashes else None


def _rejected(reason: str) -> bool:
    return reason in _REJECTIONS or reason.startswith(_OUT_OF)


def _crash(end: Termination | None) -> Iterable[float]:
    """Yield when a container ended, if it failed as soon as it began."""
    if end is None or end.exit_code == 0:
        return
    began, ended = _seconds(end.started_at), _seconds(end.finished_at)
    if began and ended and 0 <= ended - began < _INSTANT_SECONDS:
        yield ended


def _seconds(text: str | None) -> float:
    try:
        return parse_rfc3339(text or "")
    except ValueError:
        return 0.0


def closure(failures: Iterable[Failure]) -> Closure | None:
    """Return until when and why a node gets nothing new, from its failures; None where they never sufficed.

    More than two failures within 10 minutes close it for 10 minutes. Once it is open again, one more within an hour
    closes it for twice as long, up to an hour. Doubtful failures count where several jobs had them there, or where
    the job's other pods ran elsewhere.
    """
    counted = sorted(_evidence(failures), key=lambda one: one.at)
    until, spells, recent = 0.0, 0, list[float]()
    for one in counted:
        if one.at < until:
            continue  # it was on its way before the node was closed
        if one.at >= until + _PROBATION_SECONDS:
            spells = 0
        recent = [*(at for at in recent if at > one.at - _WINDOW_SECONDS), one.at]
        if spells or len(recent) > _ALLOWED:
            until = one.at + min(_CLOSED_SECONDS * 2**spells, _LONGEST_CLOSED_SECONDS)
            spells, recent = spells + 1, []
    return Closure(until, _why(counted)) if until else None


def _evidence(failures: Iterable[Failure]) -> list[Failure]:
    known = list(failures)
    several = len({one.job for one in known if one.doubtful}) > 1
    return [one for one in known if several or one.alone or not one.doubtful]


def _why(counted: list[Failure]) -> str:
    latest = [one for one in counted if one.at > counted[-1].at - _WINDOW_SECONDS]
    reasons = Counter(one.reason for one in latest)
    named = ", ".join(reason for reason, _ in reasons.most_common(_SHOWN))
    return f"{len(latest)} pods failed there within {_WINDOW_SECONDS / 60:g} min: {named}"


class Blackholes:
    """Failures by node, the newest of each pod; bounded, the oldest go first."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, Failure] = OrderedDict()  # by pod UID
        self._by_node: defaultdict[str, dict[str, Failure]] = defaultdict(dict)
        self._nodes_of: defaultdict[str, Counter[str]] = defaultdict(Counter)  # job -> node -> failures

    def note(self, pod_uid: str, failure: Failure) -> set[str]:
        """Count a pod's failure, once; return the names of nodes about which the opinion may change."""
        if self._failures.get(pod_uid) == failure:
            return set()
        touched = self._drop(pod_uid)
        self._failures[pod_uid] = failure
        self._by_node[failure.node][pod_uid] = failure
        self._nodes_of[failure.job][failure.node] += 1
        touched |= set(self._nodes_of[failure.job])
        if len(self._by_node[failure.node]) > _KEPT_PER_NODE:
            touched |= self._drop(next(iter(self._by_node[failure.node])))
        if len(self._failures) > _KEPT:
            touched |= self._drop(next(iter(self._failures)))
        return touched

    def forget_node(self, name: str) -> None:
        """A node is gone: one that comes back by its name is another."""
        for pod_uid in list(self._by_node.get(name, ())):
            self._drop(pod_uid)

    def failures(self, node: str) -> int:
        """Return how many failures of a node are remembered."""
        return len(self._by_node.get(node, ()))

    def rejections(self, node: str) -> dict[str, float]:
        """Return until when (seconds since 1970) jobs had better not go back there, by their UID: it rejected them."""
        found: dict[str, float] = {}
        for one in self._by_node.get(node, {}).values():
            if not one.doubtful:
                found[one.job] = max(found.get(one.job, 0.0), one.at + _CLOSED_SECONDS)
        return found

    def closure(self, node: str) -> Closure | None:
        """Return until when and why the node gets nothing new."""
        failures = self._by_node.get(node)
        if not failures:
            return None
        return closure(one for one in failures.values() if self._blames(one))

    def _blames(self, one: Failure) -> bool:
        return len(self._nodes_of[one.job]) <= (_BLAMED_BY_DOUBT if one.doubtful else _BLAMED)

    def _drop(self, pod_uid: str) -> set[str]:
        old = self._failures.pop(pod_uid, None)
        if old is None:
            return set()
        touched = set(self._nodes_of[old.job])
        del self._by_node[old.node][pod_uid]
        if not self._by_node[old.node]:
            del self._by_node[old.node]
        nodes = self._nodes_of[old.job]
        nodes[old.node] -= 1
        if not nodes[old.node]:
            del nodes[old.node]
        if not nodes:
            del self._nodes_of[old.job]
        return touched
