"""The demo's job without Kubernetes: torchrun agents as processes, "pods" as folders, restarts as a kubelet does them.

The environment of each agent is what the webhook's mutation of the demo's own pod template yields.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from inpod.install import install
from outrider.api.beacon import Beacon, decode
from tests.webhook.pods import apply, env_of, owner
from webhook.mutate import Context, mutate

DEMO = Path(__file__).parent.parent.parent / "testbed" / "demo"
T = TypeVar("T")


def injected_environment() -> dict[str, str]:
    """Return the environment that the demo's pod gets, literal values only."""
    job = next(each for each in yaml.safe_load_all((DEMO / "job.yaml").read_text()) if each["kind"] == "Job")
    template = job["spec"]["template"]
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    pod = {"metadata": {"labels": index, "ownerReferences": [owner()]}, "spec": template["spec"]}
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    pod["spec"]["containers"][0]["resources"]["limits"] = {name: str(value) for name, value in limits.items()}
    mutation = mutate(pod, Context("demo", "", "image"))
    assert not mutation.warnings
    return {name: value for name, value in env_of(apply(pod, mutation.patch)).items() if value}


@dataclass
class Pod:
    """One worker: its folder outlives its processes, as an emptyDir does."""

    folder: Path
    command: list[str]
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    restarts: int = -1

    def start(self) -> None:
        """Start the agent, in a session of its own so that it can be killed with its workers."""
        self.restarts += 1
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the agent and its workers, which sit in sessions of their own."""
        if self.process is None:
            return
        for pid in [*_descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def steps(self) -> list[dict[str, Any]]:
        """Return the lines that the training script printed."""
        lines = (self.folder / "log").read_bytes().splitlines() if (self.folder / "log").exists() else []
        return [json.loads(line) for line in lines if line.startswith(b'{"step"') and line.endswith(b"}")]

    def beacons(self) -> list[Beacon]:
        """Return the beacons in its folder."""
        return [decode(path.read_bytes()) for path in (self.folder / "outrider").glob("rank.*")]


@dataclass
class Job:
    """Three pods that find each other on loopback."""

    folder: Path
    torch_path: Path
    port: int
    pods: dict[int, Pod] = field(default_factory=dict)
    generation: int = 0

    def create(self, index: int) -> Pod:
        """Create the pod of an index, new folder and all."""
        self.generation += 1
        folder = self.folder / f"pod-{index}.{self.generation}"
        shared = folder / "outrider"
        shared.mkdir(parents=True)
        install(str(shared))
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": f"{shared}/py:{self.torch_path}",
            "OUTRIDER_DIR": str(shared),
            "GLOO_SOCKET_IFNAME": "lo",
            "CKPT_DIR": str(self.folder / "checkpoints"),
        }
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node=1"]
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        script = [str(DEMO / "train.py"), "--steps=100000", "--checkpoint-every=10"]
        self.pods[index] = Pod(folder, [*launcher, *rendezvous, *script], injected_environment() | own)
        self.pods[index].start()
        return self.pods[index]

    def wait(self, what: str, look: Callable[[], T | None], seconds: float = 120.0) -> T:
        """Wait until ``look`` finds something; meanwhile containers that exit are restarted in place."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (found := look()) is not None:
                return found
            for pod in self.pods.values():
                if pod.process is not None and pod.process.poll() is not None:
                    pod.start()
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {seconds:.0f} s; logs below {self.folder}")

    def at_step(self, index: int, step: int) -> dict[str, Any]:
        """Wait until the pod of an index has reached a step."""
        return self.wait(f"step {step}", lambda: next((e for e in self.pods[index].steps() if e["step"] >= step), None))

    def resumed(self, index: int, since: float) -> dict[str, Any]:
        """Wait for the first step of a new incarnation of that pod's worker, and return it."""

        def look() -> dict[str, Any] | None:
            lines = self.pods[index].steps()
            pairs = zip([{"step": -1}, *lines], lines, strict=False)
            fresh = (e for before, e in pairs if e["unix"] > since and e["step"] != before["step"] + 1)
            return next((e for e in fresh if e["step"] == e["resumed_from"] + 1), None)

        return self.wait("resumed step", look)

    def stop(self) -> None:
        """Kill everything."""
        for pod in self.pods.values():
            pod.kill()


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child))
            yield int(child)
