"""The bench of scheduling in its short version works and gives every figure."""

import pytest

from bench import scheduling

NAMES = {
    "gang_32_last_created_to_bound_s",
    "gangs_3x8_s",
    "gangs_3x8_leaves_per_gang",
    "pinned_ratio_to_bare",
    "single_gpu_ratio_to_bare",
    "unschedulable_verdict_s",
    "scheduler_rss_mb_after_gangs",
}


@pytest.mark.slow
def test_the_short_version_gives_every_figure_and_ideal_places() -> None:
    parts = ["gang", "gangs", "refused", "singles", "stream", "memory"]
    found = {figure.name: figure for figure in scheduling.figures(parts, scheduling.QUICK)}
    assert found.keys() >= NAMES
    assert all(figure.value > 0 for figure in found.values())
    assert found["gang_32_leaves"].ratio == 1
    assert found["gang_32_blocks"].ratio == 1
    assert found["gangs_3x8_leaves_per_gang"].ratio == 1
