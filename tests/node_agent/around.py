"""What stands around a probe in its tests: values that a test may change between readings."""

from node_agent.inventory import GPURecord
from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Memory
from node_agent.probes.registry import Surroundings
from node_agent.probes.report import Report
from outrider.health.catalogue import load

NOW = 1_800_000_000.0
CATALOGUE = load()
RULES = Rules(catalogue=CATALOGUE, clear_dwell_seconds=30, expected_gpus=0)


def record(index: int, **values) -> GPURecord:
    names = {"uuid": f"GPU-{index}", "pci_address": f"00000000:{index:02x}:00", "serial": f"S{index}"}
    return GPURecord(index=index, **{**names, **values})


class Around:
    """The node as the agent knows it."""

    def __init__(self, gpus: int = 2, now: float = NOW) -> None:
        self.now = now
        self.memory = Memory(inventory=[record(index) for index in range(gpus)])
        self.node = None
        self.gpunode = None
        self.pods = []
        self.pod_callbacks, self.gpunode_callbacks = [], []

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(
            inventory=lambda: self.memory.inventory,
            findings=lambda: self.memory.findings,
            catalogue=lambda: CATALOGUE,
            diagnostic=lambda: self.memory.diagnostic,
            node=lambda: self.node,
            gpunode=lambda: self.gpunode,
            pods=lambda: self.pods,
            on_pods=self.pod_callbacks.append,
            on_gpunode=self.gpunode_callbacks.append,
        )

    def take(self, name: str, report: Report, seconds: float = 0.0) -> None:
        self.memory = absorb(self.memory, name, report, self.now + seconds, RULES)

    def judgement(self, seconds: float = 0.0):
        return conclude(self.memory, self.now + seconds, RULES)

    def codes(self) -> dict[str, str]:
        return {evidence.code: evidence.subject_id for evidence in self.memory.findings}
