"""Plan a gang: all of it or nothing, close together, on healthy nodes. Pure and deterministic."""

from collections.abc import Iterable, Iterator
from typing import Final

from outrider.api.gangplacement import RejectedAlternative
from outrider.api.why import WaitReason, Why
from outrider.topology import TopologyAsk, depth_of, names_of
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.domains import label
from scheduler_plugin.placing.explain import Scope, refusal
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.room import Room
from scheduler_plugin.placing.search import Bounds, Nodes, Search, segments_of
from scheduler_plugin.placing.spares import nearest_spares

_MOST_REJECTED: Final = 8  # alternatives kept for explanations


def plan(gang: Gang, snapshot: Snapshot, spares: int, now: float) -> Placement | Refusal:
    """Return nodes for every member and up to ``spares`` spare nodes, or a refusal, at ``now`` (seconds since 1970).

    In order: the lowest domain that holds the gang, the fewest domains at each level below it, the healthiest nodes,
    whole leaves and cliques left whole, the least room left over. Ranks follow the topology. A level that the gang
    requires and the cluster does not have is refused at once.
    """
    impossible = _unknown(gang.ask, snapshot) or _contradiction(gang, snapshot)
    if impossible:
        return Refusal(impossible, why=Why(reason=WaitReason.NEVER_FITS, pods=len(gang.members), notes=[impossible]))
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    search = Search(room, snapshot)
    bounds = _bounds(gang.ask, snapshot)
    nodes = _place(search, gang, bounds)
    rejected = _rejected(search, gang, bounds.top)
    if nodes is None:
        scope = Scope(bounds.top, bounds.segment if gang.ask.segment_required else 0)
        notes = tuple(search.obstacles(segments_of(gang.members, gang.ask), bounds, gang.ask.segment_level))
        return refusal(gang, snapshot, now, scope=scope, rejected=rejected, notes=notes)
    kept = nearest_spares(room, set(nodes.values()), snapshot, spares, gang.ask)
    return Placement(nodes, kept, rejected, tuple(_unmet(gang.ask, snapshot, nodes.values())))


def places(gang: Gang, snapshot: Snapshot, now: float) -> Nodes | None:
    """Return the nodes that ``plan`` would give, or None, without spares and reasons: for whoever asks "what if"."""
    if _unknown(gang.ask, snapshot) or _contradiction(gang, snapshot):
        return None
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    return _place(Search(room, snapshot), gang, _bounds(gang.ask, snapshot))


def _unknown(ask: TopologyAsk, snapshot: Snapshot) -> str:
    """Return what is wrong with the levels that the gang requires, empty where nothing is."""
    required = (ask.required_level, ask.segment_level if ask.segment_required else "")
    for level in filter(None, required):
        if depth_of(snapshot.levels, level) is None:
            known = names_of(snapshot.levels)
            return f"requires the level {level!r}, which this cluster does not have: use one of {known}"
    return ""


def _contradiction(gang: Gang, snapshot: Snapshot) -> str:
    """Return which two wishes no cluster can meet together, empty where there are none."""
    ask = gang.ask
    together, apart = (_depth(level, snapshot) for level in (ask.required_level, ask.segment_level))
    exclusive = ask.segment_exclusive and ask.segment_required and apart
    if not exclusive or apart > together or len(segments_of(gang.members, ask)) < 2:
        return ""
    return (
        f"requires one {ask.required_level} for all pods and a {ask.segment_level} of its own for each part: "
        "leave one of the two out"
    )


def _unmet(ask: TopologyAsk, snapshot: Snapshot, nodes: Iterable[str]) -> Iterator[str]:
    """Yield in words what the gang only wished for and did not get."""
    known = names_of(snapshot.levels)
    for level in filter(None, (ask.preferred_level, ask.segment_level)):
        if depth_of(snapshot.levels, level) is None:
            yield f"prefers the level {level!r}, which this cluster does not have: use one of {known}"
    depth = _depth(ask.preferred_level, snapshot)
    domains = len({snapshot.nodes[name].place.domain(depth) for name in nodes}) if depth else 1
    if domains > 1:
        yield f"prefers one {ask.preferred_level}, none has room for all of it: it is on {domains}"


def _bounds(ask: TopologyAsk, snapshot: Snapshot) -> Bounds:
    top, segment = _depth(ask.required_level, snapshot), _depth(ask.segment_level, snapshot)
    return Bounds(top, segment if segment > top else 0, ask.segment_exclusive)  # what holds the gang holds each part


def _depth(level: str, snapshot: Snapshot) -> int:
    """Return the depth of a level, 0 where none is named or the cluster has no such level."""
    return (depth_of(snapshot.levels, level) or 0) if level else 0


def _place(search: Search, gang: Gang, bounds: Bounds) -> Nodes | None:
    """Place the gang with its segments together; where that is only a wish, at the lowest level that allows it."""
    segments = segments_of(gang.members, gang.ask)
    tries = (search.place(segments, one) for one in _concessions(bounds, must=gang.ask.segment_required))
    return next((nodes for nodes in tries if nodes is not None), None)


def _concessions(bounds: Bounds, *, must: bool) -> Iterator[Bounds]:
    yield bounds
    if not must and bounds.segment:
        depths = range(bounds.segment - 1, bounds.top, -1)
        yield from (Bounds(bounds.top, depth, bounds.exclusive) for depth in depths)
        yield Bounds(bounds.top)


def _rejected(search: Search, gang: Gang, top: int) -> tuple[RejectedAlternative, ...]:
    near = search.nearest(top or search.fabric.leaf_depth, _MOST_REJECTED)
    return tuple(
        RejectedAlternative(domain=label(one.path), reason=f"room for {room} of {len(gang.members)} pods")
        for one, room in near
    )
