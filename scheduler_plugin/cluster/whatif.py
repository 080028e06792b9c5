"""Snapshots as they would be if some gangs ended or gave up what they hold. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot

LONE: Final = ""  # stands for the pods of no gang where uses are told by gang


def without_holds(snapshot: Snapshot, gangs: Collection[str]) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs) held nothing for pods to come."""
    known = frozenset(gangs)
    return _changed(snapshot, {name: _view(view, known, ()) for name, view in snapshot.nodes.items()} if known else {})


def without_gangs(snapshot: Snapshot, gangs: Collection[str], vacated: Collection[str] = ()) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs) had ended, and the pods of no gang on ``vacated`` nodes."""
    known = frozenset(gangs)
    return _changed(
        snapshot,
        {
            name: _view(view, known, (*known, LONE) if name in vacated else known)
            for name, view in snapshot.nodes.items()
        },
    )


def _changed(snapshot: Snapshot, nodes: Mapping[str, NodeView]) -> Snapshot:
    return msgspec.structs.replace(snapshot, nodes=nodes) if nodes else snapshot


def _view(view: NodeView, holding: frozenset[str], using: Collection[str]) -> NodeView:
    """Return the node without what ``holding`` hold and ``using`` use there."""
    leaving = [uses for uid, uses in view.uses.items() if uid in using]
    if not leaving and holding.isdisjoint(view.holds):
        return view
    back: Counter[str] = Counter()
    for uses in leaving:
        back.update(uses)
    free = {name: amount + back.get(name, 0) for name, amount in view.free.items()}
    holds = {uid: held for uid, held in view.holds.items() if uid not in holding}
    room = {name: free[name] - sum(held.get(name, 0) for held in holds.values()) for name in view.gpu_room}
    return msgspec.structs.replace(
        view,
        free=free,
        holds=holds,
        uses={uid: uses for uid, uses in view.uses.items() if uid not in using},
        free_gpus=sum(free[name] for name in room),
        spare_gpus=sum(room.values()),
        gpu_room=room,
        guests=tuple(one for one in view.guests if one.gang not in using),
    )


def users(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the names of the nodes that each gang's pods run on, by the gang's UID, LONE among them."""
    nodes: dict[str, list[str]] = {}
    for name, view in snapshot.nodes.items():
        for uid in view.uses:
            nodes.setdefault(uid, []).append(name)
    return nodes
