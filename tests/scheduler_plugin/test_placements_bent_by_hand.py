"""What people are told of a placement that no planner can have written."""

import msgspec
import pytest

from outrider.api.gangplacement import GangPlacement, GangPlacementStatus, PlacementState
from scheduler_plugin.planner.acceptance import accepted, problem
from tests.scheduler_plugin.builders import gang_pods, make_node, make_placement, make_world

SOUND = make_placement("train", {0: "n0", 1: "n1"})


def bent(**changes: object) -> GangPlacement:
    return msgspec.structs.replace(SOUND, status=msgspec.structs.replace(SOUND.status, **changes))


def test_a_placement_of_the_planner_is_given_no_condition() -> None:
    assert problem(SOUND, orphaned=False) == ""
    assert accepted(SOUND, "", 0.0) is None


@pytest.mark.parametrize(
    ("placement", "field"),
    [
        (bent(expires_at="noon"), "status.expiresAt: 'noon'"),
        (bent(ranks=[*SOUND.status.ranks, SOUND.status.ranks[0]]), "status.ranks: rank 0"),
        (bent(state=PlacementState.WAITING), "status.ranks"),
    ],
)
def test_what_is_wrong_is_named_with_its_field_and_the_way_out(placement: GangPlacement, field: str) -> None:
    condition = accepted(placement, problem(placement, orphaned=False), 0.0)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "InvalidSpec")
    assert condition.message.startswith(field)
    assert "Delete the placement" in condition.message


def test_a_condition_is_written_once_and_turned_when_the_placement_makes_sense_again() -> None:
    wrong = problem(SOUND, orphaned=True)
    condition = accepted(SOUND, wrong, 0.0)
    assert condition is not None
    told = bent(conditions=[condition])
    assert accepted(told, wrong, 5.0) is None
    again = accepted(told, "", 5.0)
    assert again is not None
    assert again.status == "True"


def test_a_placement_is_orphaned_while_its_job_is_unknown_and_has_no_pods() -> None:
    alone = make_world(make_placement("train", {}))
    assert [orphaned for _, orphaned in alone.placements()] == [True]
    with_pods = make_world(make_placement("train", {}), *gang_pods("train", 1))
    assert [orphaned for _, orphaned in with_pods.placements()] == [False]


def test_a_waiting_placement_without_ranks_makes_sense() -> None:
    waiting = msgspec.structs.replace(SOUND, status=GangPlacementStatus())
    assert problem(waiting, orphaned=False) == ""


def test_a_placement_that_names_a_pod_of_another_gang_leaves_it_its_node_when_it_goes() -> None:
    mine = make_placement("train", {0: "n0"})
    stranger = msgspec.structs.replace(
        make_placement("other", {0: "n0"}), status=msgspec.structs.replace(mine.status, spares=[])
    )
    world = make_world(make_node("n0"), *gang_pods("train", 1), mine, stranger)
    world.on_placement(stranger, None)
    assert world.publish().nodes["n0"].spare_gpus == 0
    world.on_placement(mine, None)
    assert world.publish().nodes["n0"].spare_gpus == 8000
