"""Snapshots as they would be if some gangs ended or gave up what they hold. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot

LONE: Final = ""  # stands for the pods of no gang where uses are told by gang


def without_holds(snapshot: Snapshot, gangs: Collection[str]) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs) held nothing for pods to come."""
    known = frozenset(gangs)
    return _with(snapshot, {view.name: _view(view, known, ()) for view in _holding(snapshot, known)})


def without_gangs(snapshot: Snapshot, gangs: Collection[str]) -> Snapshot:
    """Return the snapshot as if these gangs (UIDs) had ended: nothing used, nothing held."""
    known = frozenset(gangs)
    views = (view for view in snapshot.nodes.values() if not known.isdisjoint(tenants(view)))
    return _with(snapshot, {view.name: _view(view, known, known) for view in views})


def vacated(snapshot: Snapshot, leaving: Iterable[tuple[str, str]]) -> Snapshot:
    """Return the snapshot as if pods had left: ``leaving`` are pairs of a node's name and a gang's UID, or LONE."""
    gangs: defaultdict[str, set[str]] = defaultdict(set)
    for name, uid in leaving:
        gangs[name].add(uid)
    return _with(snapshot, {name: _view(snapshot.nodes[name], uids, uids) for name, uids in gangs.items()})


def occupied(snapshot: Snapshot, taken: Mapping[str, Mapping[str, int]]) -> Snapshot:
    """Return the snapshot as if ``taken`` (thousandths by resource name, by node) were in use."""
    return _with(
        snapshot, {name: _taken(view, amounts) for name, amounts in taken.items() if (view := snapshot.nodes.get(name))}
    )


def tenants(view: NodeView) -> frozenset[str]:
    """Return the UIDs of the gangs whose pods run on the node, LONE among them, or are about to."""
    return frozenset(view.uses) | frozenset(view.holds)


def _holding(snapshot: Snapshot, gangs: frozenset[str]) -> Iterator[NodeView]:
    return (view for view in snapshot.nodes.values() if not gangs.isdisjoint(view.holds)) if gangs else iter(())


def _with(snapshot: Snapshot, changed: Mapping[str, NodeView]) -> Snapshot:
    return msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, **changed}) if changed else snapshot


def _view(view: NodeView, holding: Collection[str], using: Collection[str]) -> NodeView:
    """Return the node without what ``holding`` hold and ``using`` use there."""
    back: Counter[str] = Counter()
    for uid, uses in view.uses.items():
        if uid in using:
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


def _taken(view: NodeView, amounts: Mapping[str, int]) -> NodeView:
    free = {name: amount - amounts.get(name, 0) for name, amount in view.free.items()}
    room = {name: amount - amounts.get(name, 0) for name, amount in view.gpu_room.items()}
    gpus = sum(free[name] for name in room)
    return msgspec.structs.replace(view, free=free, free_gpus=gpus, spare_gpus=sum(room.values()), gpu_room=room)
