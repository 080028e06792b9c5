"""Covering a need with as few domains as can be, and which ones of those that are equally few. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from scheduler_plugin.cluster.fabric import Branch


class Item(NamedTuple):
    """A domain to choose: its room, how unhealthy it is (0 to 10), whether nobody uses any of it."""

    room: int
    sick: int
    whole: bool
    branch: Branch


def fewest(rooms: Sequence[int], need: int) -> int:
    """Return how many of the rooms, the largest first, hold the need; one more than there are if all do not."""
    return bisect_left(list(accumulate(rooms)), need) + 1


def select(items: Sequence[Item], need: int) -> list[tuple[Branch, int]]:
    """Return the domains to use and how much of the need goes to each, along the topology. All together hold it.

    The number of domains is the least possible. Of the sets of that number: the one whose worst domain is the
    healthiest, then with the fewest domains that are free as a whole (exactly so), then with little room left over.
    """
    ordered = sorted(items, key=lambda one: (-one.room, one.sick, one.branch.start))
    number = fewest([one.room for one in ordered], need)
    if number == 1:
        holds = [one for one in ordered if one.room >= need]
        best = min(holds, key=lambda one: (one.sick, one.whole, one.room, one.branch.start))
        return [(best.branch, need)]
    return _shares(_tightened(*_least_whole(_healthiest(ordered, number, need), number, need), need), need)


def _healthiest(ordered: list[Item], number: int, need: int) -> list[Item]:
    """Return the items without the sickest, as far as so many of the others hold the need."""
    for limit in sorted({one.sick for one in ordered}):
        well = [one for one in ordered if one.sick <= limit]
        if sum(one.room for one in well[:number]) >= need:
            return well
    return ordered


def _least_whole(ordered: list[Item], number: int, need: int) -> tuple[list[Item], list[Item]]:
    """Return so many items that hold the need with the fewest whole ones among them, and those not chosen."""
    wholes, parts = [one for one in ordered if one.whole], [one for one in ordered if not one.whole]
    for count in range(max(0, number - len(parts)), min(number, len(wholes)) + 1):
        rest = number - count
        if sum(one.room for one in wholes[:count]) + sum(one.room for one in parts[:rest]) >= need:
            return wholes[:count] + parts[:rest], wholes[count:] + parts[rest:]
    raise AssertionError("so many of the items hold the need")


def _tightened(chosen: list[Item], others: list[Item], need: int) -> list[Item]:
    """Return the chosen with some exchanged for smaller ones, so that less room is left over in those in use."""
    spare = sum(one.room for one in chosen) - need
    kept: list[Item] = []
    for one in sorted(chosen, key=lambda item: (item.room, item.branch.start)):
        smaller = [other for other in others if one.room - spare <= other.room < one.room and other.whole <= one.whole]
        if spare and smaller:
            best = min(smaller, key=lambda item: (item.whole, item.room, item.branch.start))
            others.remove(best)
            spare -= one.room - best.room
            kept.append(best)
        else:
            kept.append(one)
    return kept


def _shares(chosen: list[Item], need: int) -> list[tuple[Branch, int]]:
    """Return how much goes to each: what is left over stays in one domain, the sickest."""
    spare = sum(one.room for one in chosen) - need
    loose = max(chosen, key=lambda one: (one.sick, one.whole, one.room, one.branch.start))
    along = sorted(chosen, key=lambda one: one.branch.start)
    return [(one.branch, one.room - (spare if one is loose else 0)) for one in along]
