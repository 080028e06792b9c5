"""Labels that contradict each other or are missing, in words. Placement goes on with what they say. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from outrider.topology.domains import Path
from outrider.topology.levels import Level, Levels

_MOST: Final = 16  # sentences
_NAMED: Final = 3  # nodes named in one
_LONGEST: Final = 512  # characters of a sentence
_Labels = Mapping[str, str]


def oddities(nodes: Mapping[str, _Labels], levels: Levels) -> tuple[str, ...]:
    """Return what is odd about the topology labels of nodes (labels by node name), most telling first.

    Levels that no node has are not in use, and names that most parents use anew (rack-1 in every hall) are no
    contradiction: a domain is known by its whole path.
    """
    domains = {name: tuple(level.domain(labels) for level in levels) for name, labels in sorted(nodes.items())}
    used = [depth for depth in range(len(levels)) if any(path[depth] for path in domains.values())]
    found: list[str] = []
    for above, depth in zip([None, *used], used, strict=False):
        if above is not None:
            found += _torn(levels[depth], depth, above, domains)
    for depth in used:
        found += _missing(levels[depth], depth, domains)
    return tuple(words[:_LONGEST] for words in found[:_MOST])


def _torn(level: Level, depth: int, above: int, domains: Mapping[str, Path]) -> Iterator[str]:
    parents: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, path in domains.items():
        if path[depth] and path[above]:
            parents[path[depth]][path[above]].append(node)
    torn = [name for name, under in parents.items() if len(under) > 1]
    if len(torn) * 2 > len(parents) > 1:
        return
    for name in torn:
        most, *rest = sorted(parents[name].items(), key=lambda entry: (-len(entry[1]), entry[0]))
        others = " and ".join(f"under {parent} on {_some(nodes)}" for parent, nodes in rest[:_NAMED])
        count = f"{len(most[1])} node{'s' if len(most[1]) > 1 else ''}"
        yield (
            f"{level.name} {name} is under {most[0]} on {count} and {others}: they count as different domains; "
            "if it is one, correct the labels"
        )


def _missing(level: Level, depth: int, domains: Mapping[str, Path]) -> Iterator[str]:
    without = [node for node, path in domains.items() if not any(path[depth:])]
    if without and not level.inner:
        have, each = ("nodes have", "each counts") if len(without) > 1 else ("node has", "it counts")
        yield (
            f"{len(without)} {have} no {level.name} label ({_names(without)}): "
            f"{each} as far from all others until it has one"
        )


def _some(nodes: Sequence[str]) -> str:
    return f"{len(nodes)} ({_names(nodes)})"


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
