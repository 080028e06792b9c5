"""What a testbed left on the machine: everything that `down` must remove."""

import subprocess
from pathlib import Path

from testbed import processes
from testbed.cgroups import Cgroups
from testbed.cleanup import cgroup
from testbed.paths import bulk_dir, state_dir
from testbed.plan import Plan


def of(name: str, plan: Plan) -> list[str]:
    """Traces of a testbed, each in words; empty if there is none."""
    folders = [p for p in (state_dir(name), bulk_dir(name)) if p.exists()]
    groups = [root / cgroup(name) for root in Cgroups().hierarchies if (root / cgroup(name)).exists()]
    namespaces = list(Path("/run/netns").glob(f"outrider{plan.slot}-*"))
    links = [p for p in Path("/sys/class/net").iterdir() if p.name.startswith((plan.bridge, f"or{plan.slot}n"))]
    found = [f"process {pid}" for pid in processes.of_testbed(name)]
    found += map(str, [*folders, *groups, *namespaces, *links])
    return found + _routes(plan) + _mounts(name)


def _routes(plan: Plan) -> list[str]:
    out = subprocess.run(["ip", "-4", "route"], capture_output=True, text=True, check=True).stdout
    prefix = plan.network.removesuffix("0.0/16")
    return [f"route {line}" for line in out.splitlines() if line.startswith(prefix)]


def _mounts(name: str) -> list[str]:
    own = (str(state_dir(name)), str(bulk_dir(name)))
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [f"mount {line}" for line in lines if any(folder in line for folder in own)]
