"""`make demo`: shows a real training job lose a GPU and go on elsewhere. Exit code 0 only if it truly did."""

import argparse
import sys
import time

from testbed import cluster
from testbed.demo import release, scenario, summary
from testbed.demo.scenario import JOB, NAMESPACE, Scenario
from testbed.demo.story import Moment
from testbed.errors import TestbedError
from testbed.say import to_stderr
from testbed.state import State

NAME = "demo"
NODES = 4
VICTIM = 1  # rank 0 hosts torchrun's rendezvous: losing it is tested, but shows less
WARM_STEPS = 25  # past the first checkpoint of the script


class Printer:
    """Prints moments with the seconds since the run began, or since the fault once there is one."""

    def __init__(self) -> None:
        self.zero = time.monotonic()
        self.sign = " "

    def fault(self) -> None:
        """Count from now."""
        self.zero, self.sign = time.monotonic(), "+"

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"{self.sign}{time.monotonic() - self.zero:6.1f} s  {text}", flush=True)

    def tell(self, moment: Moment) -> None:
        """Print a moment."""
        self.say(moment.text)


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--name", default=NAME, help="testbed to use; started where it is not up")
    name = parser.parse_args().name
    try:
        return _run(name)
    except TestbedError as error:
        print(f"The demo did not end well: {error}", file=sys.stderr)
        print(
            f"Where to look: python -m testbed --name {name} status; logs in /run/outrider-testbed/{name}/logs",
            file=sys.stderr,
        )
        return 1


def _run(name: str) -> int:
    printer = Printer()
    state = prepare(name)
    run = Scenario(state, printer.tell)
    try:
        uid = run.submit()
        printer.say(f"job {NAMESPACE}/{JOB} submitted: {scenario.MANIFEST.name}, unchanged; 3 workers, 8 GPUs each")
        run.train_to(WARM_STEPS)
        victim = run.worker(VICTIM)
        printer.fault()
        printer.say(
            f"FAULT: GPU 3 of {victim.node} falls off the bus, under worker {victim.index} at step {run.last_step}"
        )
        fault = run.break_gpu(victim)
        found = run.resumed(fault)
        printer.say(
            f"training went on: step {found.first.step} from checkpoint {found.resumed_from}, now at {run.last_step}"
        )
        problems = run.complaints(fault, found)
        result = summary.figures(fault, found, run.moments, len(run.pods_seen), uid)
    finally:
        run.close()
    print("\n".join(summary.table(fault, result)))
    for problem in problems:
        print(f"NOT AS PROMISED: {problem}", file=sys.stderr)
    print("\n".join(_next(state, fault.node)))
    return 1 if problems else 0


def prepare(name: str) -> State:
    """Bring the testbed up with a healthy fleet, the chart and no job.

    Raises:
        TestbedError: something did not start.
    """
    state = cluster.up(name, nodes=NODES, say=to_stderr)
    release.install(state, to_stderr)
    scenario.remove_job(state)
    scenario.heal_nodes(state, to_stderr)
    return state


def _next(state: State, sick: str) -> list[str]:
    testbed = f"python -m testbed --name {state.name}"
    return [
        "",
        "The cluster stays up. Try next (in the repository, after `. .venv/bin/activate`):",
        f'  eval "$({testbed} env)"                     # kubectl and outrider talk to it',
        "  outrider status                             # health of every node, placements, remediations",
        f"  outrider why -n {NAMESPACE} POD               # why a pod is where it is",
        "  kubectl get gpunodes,remediations",
        f"  kubectl -n {NAMESPACE} logs -f job/{JOB}        # the loss curve goes on",
        f"  {testbed} node reboot {sick}        # repair the node: its taint goes",
        f"  {testbed} inject gpu-0 ecc --gpu 2          # a milder fault: the score falls, nothing moves",
        f"  less {state.folder}/traces.jsonl  # one trace from admission to the resumed step",
        "  make demo                                   # once more;  make clean removes everything",
    ]


if __name__ == "__main__":
    sys.exit(main())
