"""The scenario: a training job, a fault under one of its workers, and what follows. Used by the demo and the tests."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from outrider.api import names
from testbed import control_plane, faults, node
from testbed.api import Api
from testbed.demo import release, story, view
from testbed.demo.story import Curve, Moment
from testbed.demo.view import PodView, StepLine, View
from testbed.errors import TestbedError
from testbed.say import Say
from testbed.state import State

NAMESPACE = "demo"
JOB = "train"
WORKERS = 3
MANIFEST = Path(__file__).with_name("job.yaml")
_SCRIPT = Path(__file__).with_name("train.py")
_CHECKPOINTS = "demo-train"
_GPUS = 8  # of a node
_POLL_S = 0.5

Tell = Callable[[Moment], None]


class Fault(msgspec.Struct, frozen=True):
    """What was broken, when, and what the job looked like at that moment."""

    node: str
    victim: PodView
    before: View
    unix: float


class Timed(msgspec.Struct, frozen=True):
    """A moment, and when it was seen, in seconds since 1970."""

    unix: float
    moment: Moment


class Scenario:
    """One job in one testbed. Keeps every line and moment that it saw."""

    def __init__(self, state: State, tell: Tell = lambda _: None, namespace: str = NAMESPACE) -> None:
        self.state = state
        self.namespace = namespace
        self.moments: list[Timed] = []
        self.pods_seen: set[str] = set()
        self.now = View()
        self._api: Api | None = None
        self._tell = tell
        self._lines: dict[tuple[str, int, float], StepLine] = {}

    @property
    def lines(self) -> list[StepLine]:
        """Every step that any rank printed."""
        return list(self._lines.values())

    @property
    def last_step(self) -> int:
        """Highest step printed so far, 0 before the first."""
        return max((line.step for line in self.lines), default=0)

    def close(self) -> None:
        """Close the connection to the API server."""
        if self._api:
            self._api.close()
            self._api = None

    def submit(self) -> str:
        """Create the namespace, the script and the job as a user would, and return the job's UID.

        Raises:
            TestbedError: the API server refused something.
        """
        ensure_namespace(self.state, self.namespace)
        self.look()
        kubectl = release.kubectl
        script = kubectl(
            self.state, "create", "configmap", JOB, f"--from-file=train.py={_SCRIPT}",
            "-n", self.namespace, "--dry-run=client", "-o", "yaml",
        )  # fmt: skip
        kubectl(self.state, "apply", "-n", self.namespace, "-f", "-", stdin=script)
        kubectl(self.state, "apply", "-f", str(MANIFEST))
        return kubectl(self.state, "get", "job", JOB, "-n", self.namespace, "-o", "jsonpath={.metadata.uid}")

    def look(self) -> View:
        """Read the cluster once, tell what changed since the last look, and return what is now.

        An API server that does not answer is looked at again later: nothing is told then.
        """
        try:
            self._api = self._api or control_plane.admin(self.state)
            after = view.read(self._api, self.namespace, JOB)
            self._collect_lines(self._api, after)
        except OSError:
            self.close()
            return self.now
        for moment in story.happened(self.now, after):
            self.moments.append(Timed(time.time(), moment))
            self._tell(moment)
        self.now = after
        self.pods_seen |= set(after.pods)
        return after

    def _collect_lines(self, api: Api, seen: View) -> None:
        for pod in seen.pods.values():
            if pod.node and pod.phase != "Pending":
                for line in view.read_lines(api, self.namespace, pod.name):
                    self._lines[pod.uid, line.step, line.unix] = line

    def until(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        """Look until ``done``.

        Raises:
            TestbedError: it took longer; the message says what was waited for and what the job's pods look like.
        """
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise TestbedError(f"{what}: not within {seconds:.0f} s; {self.describe()}")
            time.sleep(_POLL_S)
            self.look()

    def describe(self) -> str:
        """One line about every worker, for error messages."""
        pods = sorted(self.now.pods.values(), key=lambda pod: pod.index)
        words = [f"{p.name} {p.phase or 'new'} on {p.node or 'no node'}{', gated' if p.gated else ''}" for p in pods]
        return f"step {self.last_step}; {'; '.join(words) or 'no pods'}"

    def train_to(self, step: int, seconds: float = 120.0) -> None:
        """Look until a rank printed that step.

        Raises:
            TestbedError: it took longer.
        """
        self.until(f"training reaches step {step}", lambda: self.last_step >= step, seconds)

    def break_gpu(self, victim: PodView, gpu: int = 3) -> Fault:
        """Let a GPU under the worker fall off the bus."""
        fault = Fault(victim.node, victim, self.now, time.time())
        self.break_node(victim.node, gpu)
        return fault

    def break_node(self, name: str, gpu: int = 3) -> None:
        """Let a GPU of the node fall off the bus."""
        faults.off_bus(faults.Driver(node.get(self.state, name).driver), gpu)

    def worker(self, index: int) -> PodView:
        """The worker's present pod.

        Raises:
            TestbedError: it has none.
        """
        for pod in self.now.pods.values():
            if pod.index == index and not pod.ending:
                return pod
        raise TestbedError(f"worker {index} has no pod: {self.describe()}")

    def resumed(self, fault: Fault, steps: int = 10, seconds: float = 180.0) -> Curve:
        """Look until training went on that many steps past the point where it had been; return the loss curve.

        Raises:
            TestbedError: it took longer.
        """

        legs: list[Curve] = []

        def done() -> bool:
            found = story.curve(self.lines, fault.unix)
            if found is None or max(found.after) < max(found.before) + steps:
                return False
            legs.append(found)
            return True

        self.until("training goes on elsewhere", done, seconds)
        return legs[-1]

    def complaints(self, fault: Fault, found: Curve) -> list[str]:
        """Return what did not end as promised; empty where all did."""
        self.look()
        replaced = self.worker(fault.victim.index)
        episodes = [e for name, e in self.now.episodes.items() if name not in fault.before.episodes]
        acknowledged = max((e.checkpoint_step for e in episodes if e.node == fault.node), default=-1)
        checks = {
            "loss curve": story.continues(found),
            "untouched workers": story.untouched(fault.before, self.now, fault.victim),
            "replaced worker": ""
            if replaced.node != fault.node
            else f"worker {replaced.index} is on {fault.node} again",
            "taint": "" if self.now.nodes[fault.node].taint is not None else f"{fault.node} lost its taint",
            "checkpoint": ""
            if found.resumed_from >= acknowledged
            else f"resumed from step {found.resumed_from}, though step {acknowledged} was acknowledged",
            "pods": ""
            if len(self.pods_seen) == WORKERS + 1
            else f"{len(self.pods_seen)} pods were seen for {WORKERS} workers and one move",
        }
        return [f"{what}: {problem}" for what, problem in checks.items() if problem]


def ensure_namespace(state: State, name: str) -> None:
    """Create the namespace if need be, and switch Outrider on in it."""
    labels = {names.ENABLED_LABEL: "true"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    release.kubectl(state, "apply", "-f", "-", stdin=json.dumps(manifest))


def remove_job(state: State, namespace: str = NAMESPACE) -> None:
    """Delete the job of an earlier run, wait until its pods are gone, and delete its checkpoints."""
    job = ("delete", "job", JOB, "-n", namespace, "--ignore-not-found", "--cascade=foreground")
    try:
        release.kubectl(state, *job, "--wait", "--timeout=60s")
    except TestbedError:  # pods of a dead node end only by force
        release.kubectl(state, "delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
    shutil.rmtree(state.folder / "shared" / _CHECKPOINTS, ignore_errors=True)


def heal_nodes(state: State, say: Say) -> None:
    """Repair every node that Outrider keeps new work away from, and wait until it takes work again.

    A reboot alone would do a few times; a board that failed three times within a week is kept from new work.

    Raises:
        TestbedError: a taint was still there after two minutes.
    """
    looker = Scenario(state)
    try:
        sick = [name for name, seen in looker.look().nodes.items() if seen.taint is not None]
        for name in sick:
            say(f"{name} is sick from an earlier run: repairing it")
            node.repair(node.get(state, name))
        if sick:
            node.wait_ready(state)
            looker.until("repaired nodes are healthy", lambda: all(map(_fit, looker.now.nodes.values())), 120)
    finally:
        looker.close()


def _fit(seen: view.NodeView) -> bool:
    return seen.taint is None and seen.gpus == _GPUS
