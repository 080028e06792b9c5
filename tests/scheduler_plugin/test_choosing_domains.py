"""The choice of domains against all choices there are, on fabrics small enough to look at all."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.topology import Place
from scheduler_plugin.cluster.fabric import Branch, Fabric
from scheduler_plugin.placing.choosing import Item, fewest, select
from scheduler_plugin.placing.tree import Tree

ITEMS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.booleans()), min_size=1, max_size=8)
BLOCKS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), min_size=1, max_size=9)


def items_of(drawn: list[tuple[int, int, bool]]) -> list[Item]:
    return [Item(*entry, Branch((str(number),), 1, number, number + 1)) for number, entry in enumerate(drawn)]


@settings(max_examples=400, deadline=None)
@given(ITEMS, st.data())
def test_a_choice_is_the_smallest_then_the_healthiest_then_breaks_the_fewest_whole_domains(
    drawn: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    items = items_of(drawn)
    need = data.draw(st.integers(1, sum(one.room for one in items)))
    chosen = select(items, need)
    by_start = {one.branch.start: one for one in items}
    used = [by_start[branch.start] for branch, _ in chosen]
    assert sum(count for _, count in chosen) == need
    assert all(0 < count <= by_start[branch.start].room for branch, count in chosen)
    assert [branch.start for branch, _ in chosen] == sorted({branch.start for branch, _ in chosen})
    number = next(
        size
        for size in range(1, len(items) + 1)
        if any(sum(one.room for one in some) >= need for some in combinations(items, size))
    )
    able = [some for some in combinations(items, number) if sum(one.room for one in some) >= need]
    assert cost(used) == min(map(cost, able))


def cost(some: tuple[Item, ...] | list[Item]) -> tuple[int, int, int]:
    return len(some), max(one.sick for one in some), sum(one.whole for one in some)


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 60))
def test_the_fewest_rooms_are_those_of_the_largest(rooms: list[int], need: int) -> None:
    ordered = sorted(rooms, reverse=True)
    number = fewest(ordered, need)
    assert number > len(rooms) or sum(ordered[:number]) >= need > sum(ordered[: number - 1])
    assert number <= len(rooms) or sum(rooms) < need


def fabric_of(blocks: list[list[int]]) -> Fabric:
    """Return a fabric with so many nodes under each leaf of each block."""
    return Fabric(
        Place(f"n{block}-{leaf}-{node}", (f"b{block}", f"l{leaf}"))
        for block, leaves in enumerate(blocks)
        for leaf, count in enumerate(leaves)
        for node in range(count)
    )


@settings(max_examples=300, deadline=None)
@given(BLOCKS, st.data())
def test_the_fewest_blocks_and_leaves_are_found_whatever_the_fabric(
    blocks: list[list[int]], data: st.DataObject
) -> None:
    total = sum(map(sum, blocks))
    need = data.draw(st.integers(1, max(total, 1)))
    fabric = fabric_of(blocks)
    nodes = len(fabric.names)
    tree = Tree(fabric, [1] * nodes, [0] * nodes, [False] * nodes, fabric.node_depth)
    way = tree.solve(need, 0)
    if total < need:
        assert way is None
        return
    assert way is not None
    names = [fabric.names[branch.start].split("-") for branch, _ in way.taken]
    assert len(names) == need
    number = fewest(sorted(map(sum, blocks), reverse=True), need)
    rooms = ([room for leaves in some for room in leaves] for some in combinations(blocks, number))
    least = min(fewest(sorted(some, reverse=True), need) for some in rooms if sum(some) >= need)
    assert (len({name[0] for name in names}), len({tuple(name[:2]) for name in names})) == (number, least)


def test_of_many_blocks_the_few_with_large_leaves_are_found() -> None:
    small = [[1] * 12 for _ in range(20)]
    large = [[6, 6], [5, 6], [6, 5]]
    fabric = fabric_of([*small, *large])
    nodes = len(fabric.names)
    tree = Tree(fabric, [1] * nodes, [0] * nodes, [False] * nodes, fabric.node_depth)
    way = tree.solve(22, 0)
    assert way is not None
    leaves = {tuple(fabric.names[branch.start].split("-")[:2]) for branch, _ in way.taken}
    assert len(leaves) == 4


def test_every_domain_is_one_run_of_nodes_along_the_topology() -> None:
    places = [
        Place(f"n{number}", (f"s{number % 2}", f"l{number % 3}"), ("c",) if number % 5 == 0 else ())
        for number in range(30)
    ]
    fabric = Fabric(places)
    where = {one.node: one for one in places}
    for depth in range(4):
        for branch in fabric.at(depth):
            inside = set(fabric.names[branch.start : branch.end])
            assert inside == {
                one.node for one in places if one.domain(depth) == where[fabric.names[branch.start]].domain(depth)
            }
    assert [one.start for one in fabric.at(fabric.node_depth)] == list(range(30))
    pairs = product(fabric.at(1), fabric.at(2))
    assert all(
        (inner in list(fabric.under(outer, 2))) == (outer.start <= inner.start < outer.end) for outer, inner in pairs
    )


def test_names_are_in_the_order_that_people_count_in() -> None:
    fabric = Fabric([Place(f"n{number}", (f"l{number // 2}",)) for number in (21, 3, 20, 2)])
    assert fabric.names == ["n2", "n3", "n20", "n21"]
