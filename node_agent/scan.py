"""One look at this machine without any cluster: ``python -m node_agent.scan``, which `outrider scan` starts.

Every probe reads for some seconds, and the agent's own judging concludes. Prints what the GPUNode's status would be, as
JSON, with what each probe could not see on stderr. Touches neither the agent's memory nor any other state of the node.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from node_agent.agent import Agent
from node_agent.config import Config
from node_agent.judging import Rules
from node_agent.probes import all as _all_probes  # noqa: F401 - importing registers the probes
from node_agent.probes import registry
from node_agent.probes.report import Report
from node_agent.publishing.objects import status_of
from node_agent.state import Store
from outrider.api.gpunode import GPUNode, GPUNodeStatus
from outrider.api.meta import ObjectMeta
from outrider.config import ConfigError, load
from outrider.health.catalogue import load as load_catalogue
from outrider.telemetry import logs

_FIRST_SECONDS: Final = 90.0  # until every probe has spoken: a hung driver is given up on long before
_SETTLE_SECONDS: Final = 3.0  # after that: probes that compare two readings get their second one, verdicts settle


async def scan(config: Config, folder: Path, settle_seconds: float = _SETTLE_SECONDS) -> GPUNodeStatus:
    """Return what the probes see and what it means. Keeps its state in ``folder``. Raises ConfigError."""
    config = msgspec.structs.replace(config, state_dir=str(folder))
    rules = Rules(
        catalogue=load_catalogue(),
        clear_dwell_seconds=config.clear_dwell_seconds,
        expected_gpus=config.expected_gpus,
    )
    probes = {name: _hurried(probe, settle_seconds) for name, probe in registry.build(config).items()}
    silences = dict.fromkeys(probes, _FIRST_SECONDS)
    agent = Agent(Store(folder), rules, silences, lambda _force: None)
    registry.attach(probes.values(), _around(agent))
    await _look(probes, agent, settle_seconds)
    for name in agent.waits_for():
        agent.take(name, Report(blind=f"no answer within {_FIRST_SECONDS:g} s"))
    known = agent.known()
    assert known is not None  # noqa: S101 - every probe has been heard or spoken for
    return status_of(known.memory, known.judgement, [], GPUNode(metadata=ObjectMeta()), time.time())


def _around(agent: Agent) -> registry.Surroundings:
    return registry.Surroundings(
        inventory=lambda: agent.memory.inventory,
        findings=lambda: agent.memory.findings,
        catalogue=lambda: agent.catalogue,
        use_catalogue=agent.use_catalogue,
        driver_version=lambda: agent.memory.driver_version,
    )


async def _look(probes: Mapping[str, registry.Probe], agent: Agent, settle_seconds: float) -> None:
    """Run the probes until each has spoken, and a while longer."""
    heard = asyncio.Event()

    def take(name: str, report: Report) -> None:
        agent.take(name, report)
        if not agent.waits_for():
            heard.set()

    tasks = [asyncio.create_task(registry.run(name, probe, take)) for name, probe in probes.items()]
    with suppress(TimeoutError):
        await asyncio.wait_for(heard.wait(), _FIRST_SECONDS)
    await asyncio.sleep(settle_seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _hurried(probe: registry.Probe, settle_seconds: float) -> registry.Probe:
    """Let the probe read twice in the time that a scan takes."""
    probe.period_seconds = min(probe.period_seconds, settle_seconds / 2)
    return probe


def main() -> int:
    """Scan and print; exit code 2 for a configuration that can't be used, else 0 whatever was found."""
    parser = argparse.ArgumentParser(prog="outrider-scan", description="Looks at the GPUs of this machine once.")
    parser.add_argument("--config", type=Path, help="YAML file as the node agent has it")
    parser.add_argument("--settle-seconds", type=float, default=_SETTLE_SECONDS)
    arguments = parser.parse_args()
    logs.setup("scan", "WARNING")
    try:
        config = load(Config, arguments.config)
        with tempfile.TemporaryDirectory(prefix="outrider-scan-") as folder:
            status = asyncio.run(scan(config, Path(folder), arguments.settle_seconds))
    except ConfigError as error:
        print(f"outrider scan: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
