"""What the agent publishes of a node's NVLink domain is what placement reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.inventory import match
from node_agent.probes.nvml_wire import GPUReading, Snapshot
from outrider.topology import clique_of

CLUSTER = "1b4e28ba2fa111d2883f0016d3cca427"


def published(*parts: tuple[int | None, int | None, str]) -> list[str]:
    readings = [
        GPUReading(index=index, uuid=f"GPU-{index}", fabric_state=state, fabric_clique=clique, fabric_cluster=cluster)
        for index, (state, clique, cluster) in enumerate(parts)
    ]
    records = match(Snapshot(gpus=readings, driver_version="580"), (), 0).records
    return [record.fabric for record in records.values()]


def test_a_clique_is_named_as_gpu_feature_discovery_names_it() -> None:
    assert clique_of(published((3, 7, CLUSTER), (3, 7, CLUSTER))) == "1b4e28ba-2fa1-11d2-883f-0016d3cca427.7"


@pytest.mark.parametrize(
    "parts",
    [
        [(3, 0, "0" * 32), (3, 0, "0" * 32)],  # an 8-GPU box whose fabric ends at the node
        [(3, 7, CLUSTER), (3, 8, CLUSTER)],
        [(3, 7, CLUSTER), (None, None, "")],
        [(3, None, CLUSTER)],
        [(3, 7, "")],
        [],
    ],
)
def test_no_clique_is_read_where_the_gpus_name_none_or_disagree(
    parts: list[tuple[int | None, int | None, str]],
) -> None:
    assert clique_of(published(*parts)) == ""


@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_words_about_a_fabric_name_a_clique_or_none(words: list[str]) -> None:
    assert len(clique_of(words)) <= 47
