"""Nodes for a whole gang when others wait too: who may use what others hold. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from outrider.api.gangplacement import PlacementState
from outrider.api.why import ENDS_MAX
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.reservations import seats
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.turns import recorded
from scheduler_plugin.cluster.whatif import occupied, without_holds
from scheduler_plugin.placing.explain import name_of
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import places, plan
from scheduler_plugin.placing.replacing import replace
from scheduler_plugin.planner.case import Case


def fit(case: Case, members: Sequence[Member], spares: int) -> Placement | Refusal:
    """Return nodes for all the members or the refusal of the whole cluster.

    What gangs behind this one in the queue hold is taken only where nothing else will do, and last of all the nodes
    that this gang has tried in vain: they may have become better.
    """
    asked = case.gang_of(members)
    result = plan(asked, case.snapshot, spares, case.now)
    if isinstance(result, Placement):
        return result
    behind = behind_of(case)
    freed = without_holds(case.snapshot, behind)
    if behind:
        result = plan(asked, freed, spares, case.now)
    if isinstance(result, Refusal) and asked.excluded:
        again = plan(msgspec.structs.replace(asked, excluded=frozenset()), freed, spares, case.now)
        result = again if isinstance(again, Placement) else result
    return result


def most(case: Case, members: Sequence[Member], least: int, spares: int) -> Placement | None:
    """Return nodes for as many members as fit, the lowest ranks, and at least ``least`` of them; None for fewer."""
    ranked = sorted(members, key=lambda one: one.rank)
    low, high, found = least, len(ranked) - 1, None
    while low <= high:
        middle = (low + high + 1) // 2
        result = fit(case, ranked[:middle], spares)
        if isinstance(result, Placement):
            found, low = result, middle + 1
        elif middle == low:
            return found
        else:
            high = middle - 1
    return found


def beside(
    case: Case, asked: Gang, survivors: Sequence[str], wishes: Mapping[str, Sequence[str]]
) -> Placement | Refusal:
    """Return nodes for members that join the gang's pods on ``survivors``; what others behind it hold, last of all."""
    snapshot = occupied(case.snapshot, _own(case))
    result = replace(asked, survivors, wishes, snapshot, case.now)
    if isinstance(result, Placement) and len(result.nodes) == len(asked.members):
        return result
    behind = behind_of(case)
    return replace(asked, survivors, wishes, without_holds(snapshot, behind), case.now) if behind else result


def _own(case: Case) -> dict[str, Counter[str]]:
    """Return what the gang's own plan will take for pods that stay in it and are not bound, and for pods to come."""
    strays = {pod.metadata.uid for pod in case.strays}
    staying = [pod for pod in case.unbound if pod.metadata.uid in case.old and pod.metadata.uid not in strays]
    own = [(case.old[one.uid].node, one) for one in case.members(staying)]
    held = seats(case.status)
    lost = {one.uid for one in case.lost_seats}
    own += [(held[one.rank], one) for one in case.to_come if one.uid not in lost and one.rank in held]
    taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node, one in own:
        taken[node].update(one.requests)
    return taken


def first_in_line(case: Case, members: Sequence[Member]) -> tuple[str, ...]:
    """Return the names of the gangs ahead whose nodes this one would get if they did not wait for them; else none."""
    ahead = ahead_of(case)
    if not ahead:
        return ()
    alone = without_holds(case.snapshot, ahead | behind_of(case))
    if places(case.gang_of(members), alone, case.now) is None:
        return ()
    return tuple(sorted(name_of(case.snapshot.plans[uid].placement) for uid in ahead))[:ENDS_MAX]


def behind_of(case: Case) -> frozenset[str]:
    """Return the UIDs of waiting gangs that hold nodes, and whose turn comes after this gang's."""
    mine = case.turn
    return frozenset(uid for uid in holders(case.snapshot) if uid != case.gang.job.uid and _turn(case, uid) > mine)


def ahead_of(case: Case) -> frozenset[str]:
    """Return the UIDs of waiting gangs that hold nodes, and whose turn comes before this gang's."""
    mine = case.turn
    return frozenset(uid for uid in holders(case.snapshot) if uid != case.gang.job.uid and _turn(case, uid) < mine)


def holders(snapshot: Snapshot) -> list[str]:
    """Return the UIDs of the gangs that wait and hold nodes meanwhile."""
    return [
        uid
        for uid, one in snapshot.plans.items()
        if one.placement.status.reservations and one.placement.status.state is PlacementState.WAITING
    ]


def _turn(case: Case, uid: str) -> tuple[int, int, float, str]:
    return recorded(uid, case.snapshot.plans[uid].placement.status, case.rules.patience_seconds, case.now)
