"""docs/concepts/probes.md tells of each probe what the code does."""

import re
from pathlib import Path

import pytest

import node_agent.probes.all  # noqa: F401 - registers the probes
from node_agent.config import Config
from node_agent.probes.registry import build

PAGE = Path(__file__).parents[2].joinpath("docs/concepts/probes.md").read_text("utf-8")
ROWS = {cells[0]: cells for line in PAGE.splitlines() if len(cells := re.split(r" *\| *", line.strip("| "))) == 5}
EVERYTHING = Config(
    dcgm_exporter_url="http://exporter",
    dcgmi_path="/dcgmi",
    checks_dir="/checks",
    cloud="aws",
    catalogue_overrides_path="/faults.yaml",
)
PROBES = build(EVERYTHING)
OTHERWISE = {("kernel-log", 2), ("nvml", 3), ("dcgm-diag", 3), ("checks", 2)}  # told in words, or each check's own


@pytest.mark.parametrize("name", PROBES)
def test_each_probe_has_a_row_with_its_period_and_time_limit(name):
    row = ROWS[f"`{name}`"]
    for column, seconds in ((2, PROBES[name].period_seconds), (3, PROBES[name].timeout_seconds)):
        if (name, column) not in OTHERWISE:
            assert row[column].split(",")[0] == f"{seconds:g} s"


def test_no_row_tells_of_a_probe_that_is_none():
    assert {name for name in ROWS if name.startswith("`")} == {f"`{name}`" for name in PROBES}


def test_each_row_leads_to_a_heading_of_the_page():
    headings = {re.sub(r"[^a-z -]", "", line[2:].strip("# ").lower()).replace(" ", "-") for line in PAGE.splitlines()}
    for row in (row for name, row in ROWS.items() if name.startswith("`")):
        (anchor,) = re.findall(r"\(#([a-z-]+)\)", row[1])
        assert anchor in headings
