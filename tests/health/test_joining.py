"""Evidence joined: exact, bounded, and the same in any order."""

import msgspec
from evidence import NOW, on_gpu
from hypothesis import given
from hypothesis import strategies as st

from outrider.health.findings import VARIANTS_MAX, Evidence, join, variant_of


def told(*messages: str) -> Evidence:
    variants = tuple(sorted({variant_of(message) for message in messages}))
    return msgspec.structs.replace(on_gpu("xid/95", count=len(messages)), variants=variants[:VARIANTS_MAX])


messages = st.lists(st.text(max_size=3), min_size=1, max_size=20)


@given(messages, messages, messages)
def test_different_messages_are_counted_exactly_in_any_order(one, two, three):
    left = join(join(told(*one), told(*two)), told(*three))
    right = join(told(*three), join(told(*two), told(*one)))
    assert left == right
    assert left.distinct == len({*one, *two, *three})
    assert left.count == len(one) + len(two) + len(three)


def test_a_storm_of_29_different_lines_is_29_whatever_its_size():
    storm = told(*(f"error at row {number}" for number in range(29)))
    known = storm
    for _ in range(1000):
        known = join(known, storm)
    assert (known.count, known.distinct) == (29 * 1001, 29)


@given(st.sets(st.integers(0, 2**32 - 1), min_size=VARIANTS_MAX, max_size=600), st.randoms())
def test_more_different_messages_than_are_told_apart_stay_bounded_in_any_order(numbers, random):
    parts = [msgspec.structs.replace(on_gpu("xid/95"), variants=(number,)) for number in numbers]
    random.shuffle(parts)
    known = parts[0]
    for part in parts[1:]:
        known = join(known, part)
    assert known.variants == tuple(sorted(numbers)[:VARIANTS_MAX])


def test_the_latest_line_names_the_unit_and_the_job():
    early = msgspec.structs.replace(on_gpu("xid/13", ago=9), unit="GPC 1 TPC 2", job="job-1")
    late = msgspec.structs.replace(on_gpu("xid/13", ago=1), unit="GPC 3 TPC 0", job="job-2")
    assert join(early, late) == join(late, early)
    assert (join(early, late).unit, join(early, late).job, join(early, late).last_seen) == (
        "GPC 3 TPC 0",
        "job-2",
        NOW - 1,
    )
