"""A node with simulated GPUs, the NVML probe on it, and the agent's memory and judgement of what it sees."""

from node_agent.config import Config
from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Memory
from node_agent.probes.gpus import NVMLProbe
from outrider.health.catalogue import load
from testbed.nvml.state import NvmlState

NOW = 1_800_000_000.0
DWELL_SECONDS = 30.0
CATALOGUE = load()


class Scene:
    """Reads as often as a test wants, ten seconds apart by its own clock."""

    def __init__(self, state: NvmlState, **settings) -> None:
        self.state = state
        self.seconds = 0.0
        settings = {"sys_path": "/nowhere", "nvml_retry_seconds": 0.5, **settings}
        self.probe = NVMLProbe(Config(**settings), clock=lambda: self.seconds)
        self.memory = Memory()
        self.rules = Rules(
            catalogue=CATALOGUE,
            clear_dwell_seconds=DWELL_SECONDS,
            expected_gpus=settings.get("expected_gpus", 0),
        )

    async def read(self, times: int = 1, seconds: float = 10.0):
        """Let the agent read; return its judgement."""
        for _ in range(times):
            self.seconds += seconds
            report = await self.probe.read()
            self.memory = absorb(self.memory, "nvml", report, NOW + self.seconds, self.rules)
        return self.judged()

    def judged(self):
        return conclude(self.memory, NOW + self.seconds, self.rules)

    def codes(self) -> dict[str, str]:
        return {evidence.code: evidence.subject_id for evidence in self.memory.findings}

    def uuid(self, gpu: int) -> str:
        return self.state.get(gpu, "uuid") or ""

    async def until_healthy(self):
        """Read for as long as a window of rates and a dwell last."""
        return await self.read(times=11)
