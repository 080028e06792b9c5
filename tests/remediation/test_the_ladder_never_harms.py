"""Whatever happens to the cluster, in whatever order, and wherever the controller is killed."""

import msgspec
from fleet import Fleet
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outrider.api.gpunode import Mode, Verdict
from outrider.api.names import CHECKPOINT_REQUEST_ANNOTATION
from outrider.api.remediation import ActionMode, Phase, StepName
from outrider.workloads import job_uid_of
from remediation.config import Budget, Config
from remediation.decisions import AddTaint, Decision, Evict, RequestCheckpoint
from remediation.episodes import nonsense
from remediation.rungs import step_of
from remediation.world import Belief

NODES = ("n0", "n1", "n2", "n3", "n4")
names = st.sampled_from(NODES)


class Harmless(RuleBasedStateMachine):
    """Two jobs on four nodes, one spare; verdicts, blindness, people and crashes come at random."""

    @initialize(mode=st.sampled_from([ActionMode.ENFORCE] * 4 + list(ActionMode)), limit=st.sampled_from([2, 3, 1, 0]))
    def begin(self, mode: ActionMode, limit: int) -> None:
        self.fleet = Fleet(Config(mode=mode, budget=Budget(max_nodes=limit, max_percent=100)))
        self.fleet.add_nodes(*NODES).add_job("a", "n0", "n1").add_job("b", "n2", "n3")
        self.fleet.train(1)
        self.fleet.judge("n1")
        self.work(crash=False, looks=2)

    @rule(name=names, verdict=st.sampled_from(Verdict), reason=st.sampled_from(["xid/79", "xid/48"]))
    def judge(self, name: str, verdict: Verdict, reason: str) -> None:
        self.fleet.judge(name, verdict, reason)

    @rule(name=names)
    def blind(self, name: str) -> None:
        self.fleet.blind(name)

    @rule(name=names, mode=st.sampled_from(Mode))
    def pause(self, name: str, mode: Mode) -> None:
        self.fleet.pause(name, mode)

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 120.0]), silent=st.sets(names, max_size=2))
    def wait(self, seconds: float, silent: set[str]) -> None:
        self.fleet.wait(seconds, *silent)

    @rule(step=st.integers(1, 200))
    def train(self, step: int) -> None:
        self.fleet.train(step)

    @rule()
    def answer(self) -> None:
        self.fleet.answer_requests()

    @rule(free=st.permutations(NODES))
    def place(self, free: list[str]) -> None:
        self.fleet.place(*free)

    @rule(protect=st.booleans())
    def protect(self, protect: bool) -> None:
        self.fleet.protected = {pod.metadata.uid for pod in self.fleet.pods.values()} if protect else set()

    @rule(crash=st.booleans(), looks=st.integers(1, 5))
    def work(self, crash: bool, looks: int) -> None:
        for name in NODES:
            self.fleet.open(name)
        for name in [episode.metadata.name for episode in self.fleet.world.open_episodes()] * looks:
            self.check(name, self.fleet.decide(name))
            self.fleet.look(name, crash=crash)

    @rule()
    def time_passes_under_a_working_controller(self) -> None:
        for _ in range(4):
            self.fleet.wait(1.0)
            self.work(crash=False, looks=2)

    @precondition(lambda self: self.fleet.episodes)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.fleet.episodes)))
        old = self.fleet.episodes[name]
        spec = msgspec.structs.replace(old.spec, cancel=True)
        self.fleet.episodes[name] = msgspec.structs.replace(old, spec=spec)

    def check(self, name: str, decision: Decision) -> None:
        if not decision.actions:
            return
        fleet, episode = self.fleet, self.fleet.episodes[name]
        assert fleet.config.mode is ActionMode.ENFORCE
        assert episode.status.phase is Phase.OPEN
        assert not episode.spec.cancel
        assert fleet.gpu_nodes[episode.spec.node].spec.mode is not Mode.PAUSED
        belief = fleet.world.evidence(episode.spec.node, fleet.now, fleet.config.evidence_fresh_seconds).belief
        assert belief is Belief.SICK
        assert decision.status.steps, "nothing is done before a rung is recorded"
        assert decision.actions == fleet.decide(name).actions
        self.check_actions(name, decision)

    def check_actions(self, name: str, decision: Decision) -> None:
        world, node = self.fleet.world, self.fleet.episodes[name].spec.node
        for action in decision.actions:
            match action:
                case AddTaint():
                    assert action.node == node
                case Evict():
                    pod = world.pod_by_uid(action.uid)
                    assert pod is not None
                    assert pod.spec.node_name == node == action.node
                    assert step_of(decision.status, StepName.CHECKPOINT) is not None
                    assert world.taint(node) is not None
                case RequestCheckpoint():
                    self.check_request(name, action)

    def check_request(self, name: str, action: RequestCheckpoint) -> None:
        pod = self.fleet.world.pod_by_uid(action.uid)
        assert pod is not None
        running = [
            other.metadata.name
            for other in self.fleet.world.open_episodes()
            if other.metadata.name != name
            and any(
                job.uid == job_uid_of(pod) and job.checkpoint_request == other.metadata.name
                for job in other.status.jobs
            )
            and (step := step_of(other.status, StepName.CHECKPOINT))
            and step.finished_at is None
        ]
        assert running == [], "one request for a job at a time"

    @invariant()
    def requests_on_one_job_agree_with_an_episode(self) -> None:
        for pod in self.fleet.pods.values():
            text = pod.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION)
            assert text is None or msgspec.json.decode(text)["id"] in self.fleet.episodes

    @invariant()
    def one_episode_is_open_on_a_node(self) -> None:
        nodes = [episode.spec.node for episode in self.fleet.world.open_episodes()]
        assert len(nodes) == len(set(nodes))

    @invariant()
    def the_ladder_never_writes_what_it_would_refuse_to_read(self) -> None:
        assert not any(nonsense(episode) for episode in self.fleet.episodes.values())


TestHarmless = Harmless.TestCase
TestHarmless.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
