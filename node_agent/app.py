"""Wires the node agent together."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from node_agent.agent import Agent
from node_agent.config import Config
from node_agent.judging import Rules
from node_agent.probes import all as _all_probes  # noqa: F401 - importing registers the probes
from node_agent.probes import registry
from node_agent.probes.report import KernelPosition
from node_agent.publishing.publisher import Publisher
from node_agent.ranks import RankWatcher
from node_agent.state import Store
from outrider import service
from outrider.api.core import Pod
from outrider.api.names import AGENT_MANAGER
from outrider.config import ConfigError
from outrider.health.catalogue import load as load_catalogue
from outrider.kube.client import Client, Selector
from outrider.kube.events import EventRecorder
from outrider.kube.informer import Informer
from outrider.kube.kinds import GPUNODES, NODES, PODS
from outrider.kube.transport import connect


async def run(config: Config) -> None:
    """Run the agent until cancelled. Raises ConfigError where the node's name is not given."""
    node = os.environ.get("NODE_NAME", "")
    if not node:
        raise ConfigError("environment: NODE_NAME is empty; the pod gets it by fieldRef spec.nodeName")
    async with connect(AGENT_MANAGER) as client:
        await _run(config, client, node)


async def _run(config: Config, client: Client, node: str) -> None:
    rules = Rules(
        catalogue=load_catalogue(),
        clear_dwell_seconds=config.clear_dwell_seconds,
        expected_gpus=config.expected_gpus,
    )
    probes = registry.build(config)
    own_pods = Informer(client, PODS, Selector(fields=f"spec.nodeName={node}"))
    own = Selector(fields=f"metadata.name={node}")
    own_node, own_gpunode = Informer(client, NODES, own), Informer(client, GPUNODES, own)

    def pods() -> Iterable[Pod]:
        return list(own_pods.items.values())

    deadlines = {name: registry.deadline_seconds(source) for name, source in probes.items()}
    agent = Agent(
        Store(Path(config.state_dir)), rules, deadlines, lambda force: publisher.touch(force=force), pods=pods
    )
    publisher = _publisher(config, client, node, agent, pods)
    watcher = RankWatcher(config, pods, agent.take_ranks)
    own_pods.subscribe(lambda _old, _new: watcher.pods_changed())
    own_node.subscribe(publisher.node_changed)
    own_gpunode.subscribe(publisher.gpunode_changed)
    around = registry.Surroundings(
        inventory=lambda: agent.memory.inventory,
        findings=lambda: agent.memory.findings,
        catalogue=lambda: agent.catalogue,
        use_catalogue=agent.use_catalogue,
        diagnostic=lambda: agent.memory.diagnostic,
        kernel_position=lambda: KernelPosition(agent.memory.boot_id, agent.memory.sequence),
        driver_version=lambda: agent.memory.driver_version,
        node=lambda: own_node.get(node),
        gpunode=lambda: own_gpunode.get(node),
        pods=pods,
        on_pods=own_pods.subscribe,
        on_gpunode=own_gpunode.subscribe,
    )
    registry.attach(probes.values(), around)
    async with asyncio.TaskGroup() as tasks:
        for name, probe in probes.items():
            tasks.create_task(registry.run(name, probe, agent.take), name=f"probe {name}")
        for informer in (own_pods, own_node, own_gpunode):
            tasks.create_task(informer.run())
        tasks.create_task(agent.judge_on())
        tasks.create_task(agent.watch_on())
        tasks.create_task(agent.save_on())
        tasks.create_task(publisher.run())
        tasks.create_task(watcher.run())
        tasks.create_task(service.serve_probes(config.probe_port, _readiness(agent, publisher)))


def _publisher(config: Config, client: Client, node: str, agent: Agent, pods: Callable[[], Iterable[Pod]]) -> Publisher:
    return Publisher(
        client,
        node,
        known=agent.known,
        pods=pods,
        events=EventRecorder(client, AGENT_MANAGER),
        announced=agent.announced,
        pause_seconds=config.publish_pause_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
    )


def _readiness(agent: Agent, publisher: Publisher) -> Callable[[], str | None]:
    def why_not() -> str | None:
        if silent := agent.waits_for():
            return f"no report yet from probe {', '.join(sorted(silent))}"
        return None if publisher.published else "the node's health has not been published yet"

    return why_not
