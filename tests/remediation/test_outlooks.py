"""The outlook follows the evidence soon, and a storm of news costs a bounded number of judgements."""

from fleet import NOW, Fleet, replace

from outrider.api.gpunode import Verdict
from outrider.health.domains import Outlook
from outrider.topology import levels_from
from remediation.outlooks import REST_SECONDS, Outlooks


def struck() -> Fleet:
    fleet = Fleet().add_rack("r0", 4)
    for name in fleet.gpu_nodes:
        fleet.find(name, "xid/145", Verdict.RESET)
    return fleet


def at(outlooks: Outlooks, fleet: Fleet, now: float) -> Outlook:
    return outlooks.at(fleet.gpu_nodes, fleet.nodes, now)


def test_news_is_judged_at_once_and_more_of_it_after_a_rest():
    outlooks, well, sick = Outlooks(levels_from("nvidia"), 60), Fleet().add_rack("r0", 4), struck()
    assert at(outlooks, well, NOW).suspects == ()
    assert not outlooks.behind
    outlooks.changed()
    assert at(outlooks, sick, NOW + REST_SECONDS / 2).suspects == ()
    assert outlooks.behind
    assert len(at(outlooks, sick, NOW + 1.1 * REST_SECONDS).suspects) == 1
    assert not outlooks.behind


def test_without_news_it_is_judged_once_a_second_since_silence_brings_none():
    outlooks, well, sick = Outlooks(levels_from("nvidia"), 60), Fleet().add_rack("r0", 4), struck()
    at(outlooks, well, NOW)
    assert at(outlooks, sick, NOW + 0.9).suspects == ()
    assert len(at(outlooks, sick, NOW + 1.0).suspects) == 1


def test_a_gpunode_whose_node_is_gone_says_nothing():
    outlooks, fleet = Outlooks(levels_from("nvidia"), 60), struck()
    del fleet.nodes["r0-0"]
    assert at(outlooks, fleet, NOW).suspects[0].members == 3


def test_a_node_that_moves_to_another_rack_is_judged_there():
    outlooks, fleet = Outlooks(levels_from("nvidia"), 60), struck().add_rack("r9", 8)
    assert at(outlooks, fleet, NOW).suspects[0].members == 4
    moved = fleet.nodes["r0-0"]
    labels = {"outrider.dev/rack": "r9"}
    fleet.nodes["r0-0"] = replace(moved, metadata=replace(moved.metadata, labels=labels))
    suspects = at(outlooks, fleet, NOW + 1).suspects
    assert [(str(one.domain), one.members) for one in suspects] == [("rack r0", 3)]
