"""What other pods refuse: host ports, required affinity and anti-affinity, hard topology spread.

As kube-scheduler's NodePorts, InterPodAffinity and PodTopologySpread plugins decide, pod by pod: members that a plan
places count for those placed after them. Nothing here is computed for pods that ask for none of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from scheduler_plugin.cluster.guests import HOSTNAME, Guest, Spread, Term
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.constraints import selects, untolerated

Value = tuple[str, str]  # a node label that makes nodes one domain, and its value


class Peers:
    """The pods that members are measured against: all on nodes but the members themselves, then those placed.

    ``add`` and ``remove`` change it, so it belongs to one plan only.
    """

    def __init__(self, snapshot: Snapshot, members: Iterable[Member]) -> None:
        self._members = {one.uid: one.guest for one in members}
        self._nodes = snapshot.nodes
        self._held: dict[Term, Counter[Value]] = {}
        self._near: dict[tuple[Term, ...], Counter[Value]] = {}
        self._far: dict[Term, Counter[Value]] = {}
        self._spreads: dict[bytes, list[_Spreading]] = {}
        self._placed: dict[str, list[Guest]] = {}
        for view in snapshot.nodes.values():
            for guest in view.guests:
                if guest.apart and guest.uid not in self._members:
                    self._hold(guest, view, 1)
        self.matter = any(guest.bonds for guest in self._members.values()) or self._refused_by_others()

    def _refused_by_others(self) -> bool:
        return any(term.selects(guest) for term in self._held for guest in self._members.values())

    @property
    def intertwined(self) -> bool:
        """True where members decide about each other's nodes beyond one on a node: then they are placed one by one."""
        return self.matter and any(
            guest.spread or any(self._reaches_far(term) for term in (*guest.together, *guest.apart))
            for guest in self._members.values()
        )

    def _reaches_far(self, term: Term) -> bool:
        return term.key != HOSTNAME and any(term.selects(guest) for guest in self._members.values())

    def alone(self, one: Member) -> bool:
        """Return whether a node takes only one member of this kind: they share a host port, or shun each other."""
        guest = one.guest
        return bool(guest.ports) or any(term.key == HOSTNAME and term.selects(guest) for term in guest.apart)

    def allows(self, one: Member, view: NodeView) -> bool:
        """Return whether the pods that are there let the member onto the node."""
        guest = one.guest
        return (
            not self._port_taken(guest, view)
            and not any(_met(counts, term, view) and term.selects(guest) for term, counts in self._held.items())
            and not any(_met(self._apart(term), term, view) for term in guest.apart)
            and self._together_holds(guest, view)
            and all(one.allows(view, guest) for one in self._spreading(one))
        )

    def add(self, one: Member, view: NodeView) -> None:
        """Count a member on the node from now on."""
        self._placed.setdefault(view.name, []).append(one.guest)
        self._count(one.guest, view, 1)

    def remove(self, one: Member, view: NodeView) -> None:
        """Take back an ``add``."""
        self._placed[view.name].remove(one.guest)
        self._count(one.guest, view, -1)

    def _count(self, guest: Guest, view: NodeView, sign: int) -> None:
        self._hold(guest, view, sign)
        for term, counts in self._far.items():
            if term.selects(guest):
                _tally(counts, term, view, sign)
        for terms, counts in self._near.items():
            if all(term.selects(guest) for term in terms):
                for term in terms:
                    _tally(counts, term, view, sign)
        for spreading in (one for kind in self._spreads.values() for one in kind):
            spreading.count(guest, view, sign)

    def _hold(self, guest: Guest, view: NodeView, sign: int) -> None:
        for term in guest.apart:
            _tally(self._held.setdefault(term, Counter()), term, view, sign)

    def _guests(self, view: NodeView) -> Iterator[Guest]:
        yield from (guest for guest in view.guests if guest.uid not in self._members)
        yield from self._placed.get(view.name, ())

    def _port_taken(self, guest: Guest, view: NodeView) -> bool:
        if not guest.ports:
            return False
        taken = [port for other in self._guests(view) for port in other.ports]
        return any(port.meets(other) for port in guest.ports for other in taken)

    def _apart(self, term: Term) -> "Counter[Value]":
        if term not in self._far:
            counts: Counter[Value] = Counter()
            for view in self._nodes.values():
                for guest in self._guests(view):
                    if term.selects(guest):
                        _tally(counts, term, view, 1)
            self._far[term] = counts
        return self._far[term]

    def _together_holds(self, guest: Guest, view: NodeView) -> bool:
        terms = guest.together
        if not terms:
            return True
        if any(term.key not in view.labels for term in terms):
            return False
        counts = self._together(terms)
        if all(counts[term.key, view.labels[term.key]] for term in terms):
            return True
        # The first of pods that want each other has nobody to join.
        return not any(counts.values()) and all(term.selects(guest) for term in terms)

    def _together(self, terms: tuple[Term, ...]) -> "Counter[Value]":
        if terms not in self._near:
            counts: Counter[Value] = Counter()
            for view in self._nodes.values():
                for guest in self._guests(view):
                    if all(term.selects(guest) for term in terms):
                        for term in terms:
                            _tally(counts, term, view, 1)
            self._near[terms] = counts
        return self._near[terms]

    def _spreading(self, one: Member) -> "list[_Spreading]":
        if not one.guest.spread:
            return []
        kind = one.shape()
        if kind not in self._spreads:
            self._spreads[kind] = [_Spreading(rule, one, self._nodes) for rule in one.guest.spread]
            for view in self._nodes.values():
                for guest in self._guests(view):
                    for spreading in self._spreads[kind]:
                        spreading.count(guest, view, 1)
        return self._spreads[kind]


class _Spreading:
    """One spread constraint of one kind of member: matching pods in each domain that counts."""

    def __init__(self, rule: Spread, one: Member, nodes: Mapping[str, NodeView]) -> None:
        self._rule, self._namespace = rule, one.guest.namespace
        keys = [other.key for other in one.guest.spread]
        self._counted = {view.name for view in nodes.values() if _counts(rule, keys, one, view)}
        self._pods: dict[str, int] = {nodes[name].labels[rule.key]: 0 for name in self._counted}
        self._least: int | None = None

    def count(self, guest: Guest, view: NodeView, sign: int) -> None:
        """Count a pod that came to the node, or left it."""
        if view.name not in self._counted or guest.leaving or guest.namespace != self._namespace:
            return
        if not self._rule.selector.everything and self._rule.selector.matches(guest.labels):
            self._pods[view.labels[self._rule.key]] += sign
            self._least = None

    def allows(self, view: NodeView, guest: Guest) -> bool:
        """Return whether one more pod there keeps the skew."""
        value = view.labels.get(self._rule.key)
        if value is None:
            return False
        if self._least is None:
            self._least = min(self._pods.values(), default=0)
        least = self._least if len(self._pods) >= self._rule.min_domains else 0
        own = 1 if self._rule.selector.matches(guest.labels) else 0
        return self._pods.get(value, 0) + own - least <= self._rule.max_skew


def _counts(rule: Spread, keys: Iterable[str], one: Member, view: NodeView) -> bool:
    """Return whether a node's domain takes part in the constraint."""
    if any(key not in view.labels for key in keys):
        return False
    if rule.by_affinity and not selects(one.node_selector, one.affinity, view.name, view.labels):
        return False
    return not rule.by_taints or untolerated(view.taints, one.tolerations) is None


def _met(counts: "Counter[Value]", term: Term, view: NodeView) -> bool:
    value = view.labels.get(term.key)
    return value is not None and counts[term.key, value] > 0


def _tally(counts: "Counter[Value]", term: Term, view: NodeView, sign: int) -> None:
    value = view.labels.get(term.key)
    if value is not None:
        counts[term.key, value] += sign
