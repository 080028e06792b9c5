"""Snapshots as they would be if some gangs ended or gave up what they hold. Pure."""

from collections import Counter
from collections.abc import Collection

import msgspec

from outrider.workloads import gpus_in
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot


def without_holds(snapshot: Snapshot, gangs: Collection[str]) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs) held nothing for pods to come."""
    return _changed(snapshot, gangs, ended=False) if gangs else snapshot


def without_gangs(snapshot: Snapshot, gangs: Collection[str]) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs; "": the pods of no gang) had ended: nothing used, nothing held."""
    return _changed(snapshot, gangs, ended=True) if gangs else snapshot


def _changed(snapshot: Snapshot, gangs: Collection[str], *, ended: bool) -> Snapshot:
    known = frozenset(gangs)
    nodes = {name: _view(view, known, ended=ended) for name, view in snapshot.nodes.items()}
    return msgspec.structs.replace(snapshot, nodes=nodes)


def _view(view: NodeView, gangs: frozenset[str], *, ended: bool) -> NodeView:
    leaving = [uses for uid, uses in view.uses.items() if uid in gangs] if ended else []
    if not leaving and gangs.isdisjoint(view.holds):
        return view
    back: Counter[str] = Counter()
    for uses in leaving:
        back.update(uses)
    free = {name: amount + back.get(name, 0) for name, amount in view.free.items()}
    holds = {uid: held for uid, held in view.holds.items() if uid not in gangs}
    return msgspec.structs.replace(
        view,
        free=free,
        holds=holds,
        uses={uid: uses for uid, uses in view.uses.items() if not (ended and uid in gangs)},
        free_gpus=gpus_in(free),
        spare_gpus=gpus_in(free) - sum(gpus_in(held) for held in holds.values()),
    )


def users(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the names of the nodes that each gang's pods run on, by the gang's UID; "" stands for pods of no gang."""
    nodes: dict[str, list[str]] = {}
    for name, view in snapshot.nodes.items():
        for uid in view.uses:
            nodes.setdefault(uid, []).append(name)
    return nodes
