"""Plans of whole gangs: how long they take, and how near they come to the best placement there is.

The best is found exactly, block set by block set; best-fit-by-count is what Kueue's BestFit does with counts.
"""

import argparse
import gc
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from bench.fabrics import NOW, gang, leaves_of, ragged, regular
from bench.figures import Figure, against
from outrider.topology import TopologyAsk
from outrider.topology.domains import Path
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement
from scheduler_plugin.placing.plan import plan

_CLUSTERS: Final = 200
_TARGET_MS: Final = 100.0
_NODES: Final = (500, 1000, 2000, 5000, 10000, 20000)
_SIZES: Final = (8, 32, 128, 512, 2048)
_ROUNDS: Final = 9


def figures() -> list[Figure]:
    """Measure; takes about a minute on one CPU."""
    return [*_speed(), *_scaling(), *_quality()]


def _speed() -> list[Figure]:
    snapshot, asked = regular(5000), gang(512)
    whole, worst = _plan_ms(asked, snapshot)
    cpu = min(_milliseconds(lambda: plan(asked, snapshot, 1, NOW), time.process_time) for _ in range(_ROUNDS))
    where = f"512 pods x 8 GPUs, 5,000 free nodes, leaves of 16, blocks of 512, 1 spare, median of {_ROUNDS}"
    segments = Gang(asked.job_uid, asked.members, ask=TopologyAsk("spine", "", 16, "leaf", segment_required=True))
    first = _first_ms(asked)
    refused, _ = _plan_ms(gang(6000), snapshot)
    return [
        against("plan_512x5000_ms", whole, "ms", _TARGET_MS, f"{where}; baseline: target"),
        against("plan_512x5000_worst_ms", worst, "ms", _TARGET_MS, f"{where}: the slowest; baseline: target"),
        against("plan_512x5000_cpu_ms", cpu, "ms", _TARGET_MS, f"{where}: CPU time of the quickest; baseline: target"),
        against("plan_512x5000_first_ms", first, "ms", _TARGET_MS, f"{where}, the network laid out anew for it"),
        against(
            "plan_512x5000_in_use_ms",
            _plan_ms(asked, regular(5000, busy=0.3))[0],
            "ms",
            _TARGET_MS,
            f"{where}; 30 % of the nodes in use, health scores that differ; baseline: target",
        ),
        against(
            "plan_512x5000_segments_ms", _plan_ms(segments, snapshot)[0], "ms", _TARGET_MS, f"{where}; of 16 ranks"
        ),
        against("refuse_6000x5000_ms", refused, "ms", 1000.0, "a gang larger than the cluster; baseline: target"),
    ]


def _scaling() -> list[Figure]:
    by_nodes = [(nodes, _plan_ms(gang(256), regular(nodes))[0]) for nodes in _NODES]
    snapshot = regular(5000)
    by_size = [(size, _plan_ms(gang(size), snapshot)[0]) for size in _SIZES]
    return [
        Figure("plan_nodes_exponent", _exponent(by_nodes), "", conditions=f"256 pods; {_listed(by_nodes, 'nodes')}"),
        Figure("plan_gang_exponent", _exponent(by_size), "", conditions=f"5,000 nodes; {_listed(by_size, 'pods')}"),
    ]


def _listed(points: Iterable[tuple[int, float]], unit: str) -> str:
    return ", ".join(f"{count} {unit} {taken:.1f} ms" for count, taken in points)


def _exponent(points: Sequence[tuple[int, float]]) -> float:
    """Return b of time = a * count ** b, by least squares on logarithms."""
    fit = statistics.linear_regression([math.log(count) for count, _ in points], [math.log(ms) for _, ms in points])
    return round(fit.slope, 2)


def _plan_ms(asked: Gang, snapshot: Snapshot) -> tuple[float, float]:
    times = [_milliseconds(lambda: plan(asked, snapshot, 1, NOW)) for _ in range(_ROUNDS)]
    return statistics.median(times), max(times)


def _first_ms(asked: Gang) -> float:
    snapshots = [regular(5000) for _ in range(3)]
    return statistics.median(_milliseconds(lambda one=one: plan(asked, one, 1, NOW)) for one in snapshots)  # type: ignore[misc]  # mypy can't infer a lambda with a default


def _milliseconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    gc.collect()
    start = clock()
    call()
    return (clock() - start) * 1000


class Used(NamedTuple):
    """What a placement costs: blocks and leaves it is on, and leaves that it takes from those that nobody used."""

    blocks: int
    leaves: int
    wholes: int


def _quality() -> list[Figure]:
    """Compare plans on ragged, half-used clusters with the best there is and with best-fit-by-count."""
    found = [used for seed in range(_CLUSTERS) for used in _compared(seed)]
    ours, best, fit = ([used[which] for used in found] for which in range(3))
    where = f"{len(found)} gangs on {_CLUSTERS} random clusters in use, leaves of 1 to 11, pods of a whole node"
    return [
        _gap("gap_to_optimum_pct", "leaves", ours, best, fit, where),
        _gap("blocks_gap_to_optimum_pct", "blocks", ours, best, fit, where),
        _gap("broken_leaves_gap_to_optimum_pct", "wholes", ours, best, fit, f"{where}; free leaves taken into use"),
        Figure(
            "placements_at_optimum_pct",
            round(100 * statistics.mean(a == b for a, b in zip(ours, best, strict=True)), 1),
            "%",
            round(100 * statistics.mean(a == b for a, b in zip(fit, best, strict=True)), 1),
            conditions=f"{where}; blocks, leaves and free leaves all as few as can be; baseline: best-fit-by-count",
        ),
    ]


def _gap(name: str, field: str, ours: list[Used], best: list[Used], fit: list[Used], where: str) -> Figure:
    total, least, theirs = (sum(getattr(one, field) for one in used) for used in (ours, best, fit))
    said = f"{where}; {field}: {total} planned, {least} at best, {theirs} by count; baseline: best-fit-by-count"
    return Figure(name, _above(total, least), "%", _above(theirs, least), conditions=said)


def _above(value: int, least: int) -> float:
    return round(100 * (value / least - 1), 2) if least else 0.0


def _compared(seed: int) -> list[tuple[Used, Used, Used]]:
    snapshot = ragged(seed)
    rooms = _rooms(snapshot)
    room = sum(sum(leaves.values()) for leaves in rooms.values())
    draw = random.Random(seed)
    sizes = {draw.randint(1, room) for _ in range(3)} if room else set()
    return [
        (_ours(snapshot, size), _optimum(snapshot, rooms, size), _best_fit(snapshot, rooms, size)) for size in sizes
    ]


def _rooms(snapshot: Snapshot) -> dict[Path, dict[Path, int]]:
    """Return the free nodes of each leaf, by block."""
    rooms: defaultdict[Path, dict[Path, int]] = defaultdict(dict)
    for view in snapshot.nodes.values():
        if view.spare_gpus == view.gpus:
            leaf = view.place.path
            rooms[leaf[:-1]][leaf] = rooms[leaf[:-1]].get(leaf, 0) + 1
    return rooms


def _whole(snapshot: Snapshot) -> set[Path]:
    busy = {view.place.path for view in snapshot.nodes.values() if view.spare_gpus < view.gpus}
    return {view.place.path for view in snapshot.nodes.values()} - busy


def _used(snapshot: Snapshot, leaves: Iterable[Path]) -> Used:
    taken = set(leaves)
    return Used(len({leaf[:-1] for leaf in taken}), len(taken), len(taken & _whole(snapshot)))


def _ours(snapshot: Snapshot, size: int) -> Used:
    result = plan(gang(size), snapshot, 0, NOW)
    if not isinstance(result, Placement):
        raise TypeError(f"{size} pods have room and were refused: {result.message}")
    return _used(snapshot, leaves_of(snapshot, list(result.nodes.values())))


def _optimum(snapshot: Snapshot, rooms: dict[Path, dict[Path, int]], need: int) -> Used:
    """Return the least blocks, then leaves, then free leaves, over all sets of so few blocks."""
    totals = {block: sum(leaves.values()) for block, leaves in rooms.items()}
    blocks = next(n for n in range(1, len(totals) + 1) if sum(sorted(totals.values(), reverse=True)[:n]) >= need)
    enough = (some for some in combinations(sorted(rooms), blocks) if sum(totals[one] for one in some) >= need)
    whole = _whole(snapshot)
    leaves = ([(room, leaf in whole) for one in some for leaf, room in rooms[one].items()] for some in enough)
    return min(Used(blocks, *_least(inside, need)) for inside in leaves)


def _least(leaves: Sequence[tuple[int, bool]], need: int) -> tuple[int, int]:
    """Return the least leaves, then free leaves, that hold the need: the most room by number of each, leaf by leaf."""
    most = {(0, 0): 0}
    for room, whole in leaves:
        for (count, wholes), held in sorted(most.items(), reverse=True):
            key = (count + 1, wholes + whole)
            most[key] = max(most.get(key, 0), held + room)
    return min(key for key, held in most.items() if held >= need)


def _best_fit(snapshot: Snapshot, rooms: dict[Path, dict[Path, int]], need: int) -> Used:
    """Return what best-fit-by-count uses: the lowest level that holds the gang, then level by level by counts."""
    leaves = {leaf: room for block in rooms.values() for leaf, room in block.items()}
    holding = [leaf for leaf, room in leaves.items() if room >= need]
    if holding:
        return _used(snapshot, [min(holding, key=lambda leaf: (leaves[leaf], leaf))])
    blocks = _by_count({block: sum(inside.values()) for block, inside in rooms.items()}, need)
    return _used(snapshot, _by_count({leaf: room for block in blocks for leaf, room in rooms[block].items()}, need))


def _by_count(rooms: dict[Path, int], need: int) -> list[Path]:
    """Return the domains to use: the largest first, and last the tightest that holds the rest."""
    left = sorted(rooms, key=lambda one: (-rooms[one], one))
    taken: list[Path] = []
    while need > 0:
        holding = [one for one in left if rooms[one] >= need]
        best = min(holding, key=lambda one: (rooms[one], one)) if holding else left[0]
        left.remove(best)
        taken.append(best)
        need -= rooms[best]
    return taken


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__).parse_args()
    for figure in figures():
        print(figure.name, figure.value, figure.unit, figure.baseline, figure.ratio, figure.conditions)


if __name__ == "__main__":
    main()
