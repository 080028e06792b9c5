"""The placements of all gangs, by job and by the node that they hold room on."""

from collections import defaultdict
from collections.abc import ItemsView, Iterator, Mapping

from outrider.api.gangplacement import GangPlacementStatus
from scheduler_plugin.cluster.nodes import Amounts
from scheduler_plugin.cluster.reservations import reserved, seats
from scheduler_plugin.cluster.snapshot import Plan


class Plans:
    """Plans by job UID. ``hold`` and ``release`` return the nodes that they change.

    A placement bent by hand may name one pod twice, or a pod of another gang: what is let go is what was held, and
    nobody else's.
    """

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._nodes: dict[str, set[str]] = {}  # job UID -> the nodes that its plan holds room on
        self._ranks: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)  # node -> job UID -> UIDs of its pods
        self._reserved: defaultdict[str, dict[str, Amounts]] = defaultdict(dict)  # node -> job UID -> for pods to come

    def __iter__(self) -> Iterator[Plan]:
        """Yield every plan."""
        return iter(self._plans.values())

    def get(self, job_uid: str) -> Plan | None:
        """Return a job's plan, None while it has no placement."""
        return self._plans.get(job_uid)

    def items(self) -> ItemsView[str, Plan]:
        """Return every plan with its job's UID."""
        return self._plans.items()

    def status(self, job_uid: str) -> GangPlacementStatus:
        """Return what is on record for a job, an empty status where nothing is."""
        plan = self._plans.get(job_uid)
        return plan.placement.status if plan else GangPlacementStatus()

    def hold(self, plan: Plan) -> set[str]:
        """Take a plan of a job that has none."""
        uid = plan.placement.spec.job_uid
        self._plans[uid] = plan
        amounts = reserved(plan.placement.status)
        for node, asked in amounts.items():
            self._reserved[node][uid] = asked
        ranks = plan.ranks.values() if plan.planned else ()
        for rank in ranks:
            self._ranks[rank.node].setdefault(uid, []).append(rank.pod_uid)
        self._nodes[uid] = {*amounts, *(rank.node for rank in ranks)}
        return self._nodes[uid]

    def release(self, job_uid: str) -> set[str]:
        """Let go what a job's plan holds."""
        del self._plans[job_uid]
        nodes = self._nodes.pop(job_uid)
        for node in nodes:
            self._ranks[node].pop(job_uid, None)
            self._reserved[node].pop(job_uid, None)
        return nodes

    def seats(self, job_uid: str) -> set[str]:
        """Return the nodes that hold room for a job's pods to come."""
        return set(seats(self.status(job_uid)).values())

    def node_of(self, job_uid: str, pod_uid: str) -> str:
        """Return the node planned for a pod, empty where it has none."""
        plan = self._plans.get(job_uid)
        rank = plan.ranks.get(pod_uid) if plan else None
        return rank.node if rank else ""

    def ranks(self, node: str) -> list[tuple[str, str]]:
        """Return the UIDs of the pods that are planned for a node, each with that of the job whose plan says so."""
        return [(pod, job) for job, pods in self._ranks.get(node, {}).items() for pod in pods]

    def reserved(self, node: str) -> Mapping[str, Amounts]:
        """Return what a node holds for pods still to come, by job UID, in thousandths."""
        return self._reserved.get(node, {})

    def waiting(self, node: str) -> frozenset[str]:
        """Return the UIDs of the jobs that wait, without a plan, and hold room on a node."""
        return frozenset(uid for uid in self._reserved.get(node, ()) if not self._plans[uid].planned)
