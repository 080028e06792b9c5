"""Jobs of real controllers: placed whole, a failed node replaced by a spare; those that start in stages do start."""

from typing import NamedTuple

import pytest

from testbed.operators import jobs
from testbed.operators.jobs import Example, Object
from tests.operators.site import Site, leaf_of

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A job, and how many pods with GPUs each of its gangs has."""

    example: Example
    gangs: tuple[int, ...]
    leaves: int = 1
    """Leaves per gang."""

    recreated: int = 1
    """Pods that the controller makes anew when one is evicted; 0: training-operator 1.9 replaces no TFJob's worker."""

    in_order: bool = True
    """Ranks follow the network; not those of a leader whose pod affinity sets it apart from workers still to come."""

    @property
    def members(self) -> int:
        return sum(self.gangs)


CASES = [
    Case(jobs.job("indexed"), (4,)),
    Case(jobs.stateful_set("parallel"), (3,)),
    Case(jobs.job_set("replicas"), (4,)),
    Case(jobs.job_set("exclusive"), (4,), leaves=2),
    Case(jobs.job_set("depends-on"), (4,)),
    Case(jobs.job_set("in-order"), (4,)),
    Case(jobs.leader_worker_set("created"), (4, 4), recreated=4),
    Case(jobs.leader_worker_set("leader-ready", restart="None"), (4, 4)),
    Case(jobs.leader_worker_set("exclusive", restart="None"), (4, 4), in_order=False),
    Case(jobs.leader_worker_set("leader-template", restart="None"), (3, 3)),
    Case(jobs.pytorch_job("master"), (4,)),
    Case(jobs.pytorch_job("elastic"), (3,)),
    Case(jobs.tf_job(), (3,), recreated=0),
    Case(jobs.jax_job(), (3,)),
    Case(jobs.mpi_job("at-startup"), (3,)),
    Case(jobs.mpi_job("workers-ready"), (3,)),
    Case(jobs.mpi_job("launcher-works"), (4,)),
    Case(jobs.train_job("torch"), (3,)),
    Case(jobs.train_job("deepspeed"), (3,)),
    Case(jobs.ray_cluster("workers"), (3,)),
    Case(jobs.ray_cluster("multi-host"), (4,)),
    Case(jobs.ray_job(), (2,)),
]


def nodes_of(placement: Object) -> list[str]:
    return [rank["node"] for rank in sorted(placement["status"]["ranks"], key=lambda rank: rank["rank"])]


def by_uid(pods: list[Object]) -> dict[str, str]:
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.example.kind}-{case.example.variant}")
def test_a_gang_is_placed_whole_and_a_failed_node_is_replaced_by_a_spare(site: Site, case: Case) -> None:
    site.submit(case.example)
    before = site.bound(case.members)
    placements = site.placements(len(case.gangs))
    assert sorted(one["spec"]["size"] for one in placements) == sorted(case.gangs)
    planned = {rank["podUid"]: rank["node"] for one in placements for rank in one["status"]["ranks"]}
    assert planned == by_uid(before)
    for one in placements:
        nodes = nodes_of(one)
        assert len(set(nodes)) == len(nodes)
        assert nodes == sorted(nodes) or not case.in_order, "neighbours in rank are neighbours in the network"
        assert len({leaf_of(node) for node in nodes}) == case.leaves
    if case.recreated:
        _fail_one(site, case, placements, before)


SINGLES = [jobs.job("plain"), jobs.stateful_set("ordered")]


@pytest.mark.parametrize("example", SINGLES, ids=lambda example: f"{example.kind}-{example.variant}")
def test_pods_that_do_not_start_together_are_placed_each_on_its_own(site: Site, example: Example) -> None:
    site.submit(example)
    before = site.bound(example.pods)
    lost = before[0]
    site.fail(lost["spec"]["nodeName"])
    site.evict(lost)

    def elsewhere() -> bool:
        nodes = [pod["spec"].get("nodeName") for pod in site.members()]
        return len(nodes) == example.pods and None not in nodes and lost["spec"]["nodeName"] not in nodes

    assert site.eventually(elsewhere, "pods on healthy nodes")


def _fail_one(site: Site, case: Case, placements: list[Object], before: list[Object]) -> None:
    broken = placements[0]
    lost = max(broken["status"]["ranks"], key=lambda rank: rank["rank"])
    site.fail(lost["node"])
    site.evict(next(pod for pod in before if pod["metadata"]["uid"] == lost["podUid"]))

    def replaced() -> list[Object] | None:
        here = site.members()
        running = [pod for pod in here if pod["status"]["phase"] == "Running"]
        anew = by_uid(running).keys() - by_uid(before).keys()
        return running if len(here) == len(running) == case.members and len(anew) == case.recreated else None

    after = by_uid(site.eventually(replaced, f"{case.recreated} pods made anew, and running"))
    kept = by_uid(before).keys() & after.keys()
    assert {uid: after[uid] for uid in kept} == {uid: by_uid(before)[uid] for uid in kept}
    assert len(kept) == case.members - case.recreated
    assert lost["node"] not in after.values()
    if case.recreated == 1:
        (node,) = (after[uid] for uid in after.keys() - kept)
        assert leaf_of(node) == leaf_of(lost["node"])
        taken = by_uid(before).values()  # a spare may have gone to the other gang of the same job
        spares = [spare for spare in broken["status"]["spares"] if spare not in taken]
        near = [spare for spare in spares if leaf_of(spare) == leaf_of(node)]
        assert node in near[:1] or not near
    again = site.placements(len(case.gangs), revision=broken["status"]["revision"])
    assert {rank["podUid"]: rank["node"] for one in again for rank in one["status"]["ranks"]} == after
