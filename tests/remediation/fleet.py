"""A model of a cluster for the ladder's tests: it answers actions as a real one would, with a clock that tests move."""

from dataclasses import dataclass, field

import msgspec

from outrider.api.checkpoint import CheckpointRequest
from outrider.api.core import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, StatusCondition
from outrider.api.gpunode import Finding, GPUNode, GPUNodeSpec, GPUNodeStatus, Health, Mode, RankState, Verdict
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import CHECKPOINT_REQUEST_ANNOTATION, JOB_UID_LABEL
from outrider.api.remediation import ActionMode, Remediation
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.health.domains import judge_domains
from outrider.topology import domains_of
from remediation.config import Config
from remediation.decisions import Action, AddTaint, Decision, Evict, RequestCheckpoint
from remediation.domain_episodes import openings
from remediation.episodes import opening
from remediation.ladder import next_step
from remediation.world import World

NOW = 1_800_000_000.0
ENFORCE = Config(mode=ActionMode.ENFORCE)
INDEX = "batch.kubernetes.io/job-completion-index"
replace = msgspec.structs.replace


def node(name: str, labels: dict[str, str] | None = None) -> Node:
    ready = StatusCondition(type="Ready", status="True")
    return Node(metadata=ObjectMeta(name=name, labels=labels or {}), status=NodeStatus(conditions=[ready]))


def gpu_node(name: str, now: float = NOW) -> GPUNode:
    status = GPUNodeStatus(health=Health.HEALTHY, score=100, boot_id="boot-1", observed_at=rfc3339(now))
    return GPUNode(metadata=ObjectMeta(name=name), status=status)


def pod(job: str, rank: int, on: str, uid: str, now: float = NOW) -> Pod:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, uid=f"uid-{job}", controller=True)
    meta = ObjectMeta(
        name=f"{job}-{rank}-{uid}",
        namespace="team",
        uid=uid,
        creation_timestamp=rfc3339(now),
        labels={JOB_UID_LABEL: f"uid-{job}", INDEX: str(rank)},
        owner_references=[owner],
    )
    return Pod(metadata=meta, spec=PodSpec(node_name=on), status=PodStatus(phase="Running" if on else "Pending"))


@dataclass
class Fleet:
    """Nodes, jobs and one controller that works as the real one: record, then act."""

    config: Config = ENFORCE
    now: float = NOW
    nodes: dict[str, Node] = field(default_factory=dict)
    gpu_nodes: dict[str, GPUNode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    episodes: dict[str, Remediation] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)  # pod UIDs that a PodDisruptionBudget keeps
    acted: list[Action] = field(default_factory=list)
    made: int = 0

    def add_nodes(self, *names: str) -> "Fleet":
        for name in names:
            self.nodes[name] = node(name)
            self.gpu_nodes[name] = gpu_node(name, self.now)
        return self

    def add_rack(self, rack: str, size: int) -> "Fleet":
        """Add nodes RACK-0, RACK-1, ..."""
        for name in (f"{rack}-{number}" for number in range(size)):
            self.add_nodes(name)
            self.nodes[name] = node(name, {"outrider.dev/rack": rack})
        return self

    def add_job(self, job: str, *on: str) -> "Fleet":
        for rank, name in enumerate(on):
            self.add_pod(job, rank, name)
        return self

    def add_pod(self, job: str, rank: int, on: str) -> Pod:
        self.made += 1
        made = pod(job, rank, on, f"p{self.made}", self.now)
        self.pods[made.key] = made
        return made

    @property
    def world(self) -> World:
        statuses = {name: gpu_node.status for name, gpu_node in self.gpu_nodes.items()}
        levels = self.config.levels()
        places = {name: domains_of(name, one.metadata.labels, levels) for name, one in self.nodes.items()}
        return World(
            gpu_nodes=self.gpu_nodes,
            nodes=self.nodes,
            pods=self.pods,
            remediations=self.episodes,
            outlook=judge_domains(statuses, places, self.now, self.config.evidence_fresh_seconds),
        )

    # What happens to the cluster

    def judge(self, name: str, verdict: Verdict = Verdict.REPLACE, reason: str = "xid/79") -> None:
        health = Health.UNHEALTHY if verdict.hard else Health.HEALTHY
        self._status(name, verdict=verdict, reason=reason, health=health)

    def find(self, name: str, code: str, verdict: Verdict = Verdict.WATCH, ago: float = 0.0) -> None:
        """Let the node's agent report a finding; the gravest decides about the node."""
        at = rfc3339(self.now - ago)
        made = Finding(code=code, first_seen=at, last_seen=at, verdict=verdict)
        found = [*self.gpu_nodes[name].status.findings, made]
        decider = max(found, key=lambda one: one.verdict.severity)
        self._status(name, findings=found)
        self.judge(name, decider.verdict, decider.code)

    def repaired(self, name: str) -> None:
        self._status(name, findings=[])
        self.judge(name, Verdict.NONE, "")

    def blind(self, name: str) -> None:
        self._status(name, health=Health.UNKNOWN)

    def pause(self, name: str, mode: Mode = Mode.PAUSED) -> None:
        self.gpu_nodes[name] = replace(self.gpu_nodes[name], spec=GPUNodeSpec(mode=mode, reason="maintenance"))

    def _status(self, name: str, **changes: object) -> None:
        old = self.gpu_nodes[name]
        changes.setdefault("observed_at", rfc3339(self.now))
        self.gpu_nodes[name] = replace(old, status=replace(old.status, **changes))

    def heartbeat(self, *silent: str) -> None:
        for name in self.gpu_nodes:
            if name not in silent:
                self._status(name)

    def wait(self, seconds: float, *silent: str) -> "Fleet":
        self.now += seconds
        self.heartbeat(*silent)
        return self

    def report(self, owner: Pod, step: int, acknowledged: str = "", state: str = "", saved_step: int = -1) -> None:
        name = owner.spec.node_name
        rank = RankState(
            pod_uid=owner.metadata.uid,
            rank=int(owner.metadata.labels[INDEX]),
            step=step,
            checkpoint_step=saved_step,
            acknowledged=acknowledged,
            acknowledged_state=state,
            observed_at=rfc3339(self.now),
        )
        others = [old for old in self.gpu_nodes[name].status.ranks if old.pod_uid != owner.metadata.uid]
        self._status(name, ranks=[*others, rank])

    def answer_requests(self, step: int = 100) -> None:
        """Every running rank answers its request; rank 0 has saved."""
        for owner in list(self.pods.values()):
            text = owner.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION)
            if text and owner.spec.node_name:
                request = msgspec.json.decode(text, type=CheckpointRequest)
                state = "saved" if owner.metadata.labels[INDEX] == "0" else "no-writer"
                self.report(owner, step, request.id, state, step)

    def train(self, step: int) -> None:
        for owner in self.pods.values():
            if owner.spec.node_name and owner.metadata.deletion_timestamp is None:
                self.report(owner, step, saved_step=-1)

    def place(self, *free: str) -> None:
        """Bind pending pods to free nodes, as planner and kube-scheduler do."""
        pending = [key for key, one in self.pods.items() if not one.spec.node_name]
        for key, name in zip(pending, free, strict=False):
            bound = replace(self.pods[key], spec=PodSpec(node_name=name), status=PodStatus(phase="Running"))
            self.pods[key] = bound

    # What the controller does

    def open(self, name: str) -> Remediation | None:
        episode = opening(name, self.world, self.now, self.config.evidence_fresh_seconds)
        if episode:
            self.episodes[episode.metadata.name] = episode
        return episode

    def look_at_domains(self) -> list[Remediation]:
        """Open what is suspected and advance what is open, as the controller does. Returns all episodes of domains."""
        for episode in openings(self.world, self.world.outlook.suspects):
            meta = replace(episode.metadata, creation_timestamp=rfc3339(self.now))
            self.episodes[episode.metadata.name] = replace(episode, metadata=meta)
        for episode in self.world.domain_episodes():
            self.look(episode.metadata.name)
        return self.world.domain_episodes()

    def decide(self, name: str) -> Decision:
        return next_step(self.episodes[name], self.world, self.config, self.now)

    def look(self, name: str, *, crash: bool = False) -> Decision:
        """Decide, record and act once; with ``crash`` the controller dies between recording and acting."""
        decision = self.decide(name)
        self.episodes[name] = replace(self.episodes[name], status=decision.status)
        for action in () if crash else decision.actions:
            self.acted.append(action)
            self._apply(action)
        return decision

    def run(self, name: str, looks: int = 12) -> Remediation:
        """Look so often that only the passing of time or a change outside can move the episode on."""
        for _ in range(looks):
            self.look(name)
        return self.episodes[name]

    def _apply(self, action: Action) -> None:
        match action:
            case AddTaint():
                old = self.nodes[action.node]
                self.nodes[action.node] = replace(old, spec=NodeSpec(taints=[action.taint]))
            case RequestCheckpoint():
                self._annotate(f"{action.namespace}/{action.pod}", action.value)
            case Evict() if action.uid not in self.protected:
                self._evict(f"{action.namespace}/{action.pod}")

    def _annotate(self, key: str, value: str) -> None:
        old = self.pods[key]
        meta = replace(old.metadata, annotations={CHECKPOINT_REQUEST_ANNOTATION: value})
        self.pods[key] = replace(old, metadata=meta)

    def _evict(self, key: str) -> None:
        """The pod goes and its job's controller makes a new one of the same rank."""
        gone = self.pods.pop(key, None)
        if gone is not None:
            owner = gone.metadata.owner_references[0].name
            self.add_pod(owner, int(gone.metadata.labels[INDEX]), "")

    def evicted(self) -> set[tuple[str, str]]:
        return {(action.uid, action.node) for action in self.acted if isinstance(action, Evict)}

    def deadline(self, name: str) -> float:
        return parse_rfc3339(self.episodes[name].status.checkpoint_deadline or rfc3339(0))
