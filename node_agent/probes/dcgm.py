"""The DCGM probe: reads the page of the node's dcgm-exporter. An optional source: NVML sees all GPUs without it."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import aiohttp

from node_agent.config import Config
from node_agent.inventory import GPURecord
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report, States
from node_agent.readings.dcgm import SOURCE, DCGMWatch, Values, read_page
from outrider.health.findings import seen

_PAGE_BYTES: Final = 8 * 1024 * 1024  # 16 GPUs with all fields and pod labels have well under 2 MiB
_ANSWER_SECONDS: Final = 10.0
_READ_BYTES: Final = 64 * 1024


class Unreachable(Exception):
    """The exporter gave no page; the text says why."""


class DCGMProbe:
    """Fetches the page on a new connection each time: at a page each half minute a kept one would mostly be stale."""

    wake: asyncio.Event | None = None
    timeout_seconds = 30.0

    def __init__(self, config: Config) -> None:
        self.period_seconds = config.dcgm_period_seconds
        self._url = config.dcgm_exporter_url
        self._watch = DCGMWatch()
        self._around: Surroundings | None = None

    def attach(self, around: Surroundings) -> None:
        """See Attached."""
        self._around = around

    async def read(self) -> Report:
        """Return what the page shows; that there is none is a finding of its own, and says nothing about GPUs."""
        around = self._around
        if around is None:
            return Report()
        inventory = around.inventory()
        try:
            gpus = _own_gpus(await _fetch(self._url), inventory)
        except Unreachable as problem:
            bad = seen("dcgm/unreachable", time.time(), line=f"{self._url}: {problem}", source=SOURCE)
            return Report(states=States(bad=(bad,)))
        now, wall = asyncio.get_running_loop().time(), time.time()
        states = self._watch.judge(gpus, inventory, around.findings(), around.catalogue(), now, wall)
        return Report(states=states)

    async def close(self) -> None:
        """Nothing is kept open."""


def _own_gpus(page: str, inventory: Sequence[GPURecord]) -> dict[str, Values]:
    gpus = read_page(page, {record.pci_address: record.uuid for record in inventory})
    if gpus and inventory and not any(record.uuid in gpus for record in inventory):
        raise Unreachable("the page shows GPUs of another node; the URL must lead to this node's own exporter")
    return gpus


async def _fetch(url: str) -> str:
    limit = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as response:
            if response.status != 200:
                raise Unreachable(f"HTTP {response.status}")
            page = bytearray()
            while chunk := await response.content.read(_READ_BYTES):
                page += chunk
                if len(page) > _PAGE_BYTES:
                    raise Unreachable(f"the page has more than {_PAGE_BYTES} bytes")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Unreachable(str(error) or f"no answer within {_ANSWER_SECONDS:g} s") from error
    return page.decode("utf-8", "replace")


@probe("dcgm")
def _build(config: Config) -> DCGMProbe | None:
    return DCGMProbe(config) if config.dcgm_exporter_url else None
