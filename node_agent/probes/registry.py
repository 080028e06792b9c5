"""The collector pattern: one file per probe, one line to register it, one runner that keeps them apart.

A probe that hangs, fails or lies about its form never delays another: each runs in its own task under its own time
limit, and its silence is itself a finding, ``monitor/blind``.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from node_agent.config import Config
from node_agent.inventory import GPURecord
from node_agent.metrics import PROBE_SECONDS, PROBE_SUCCESS
from node_agent.probes.report import KernelPosition, Report
from outrider.api.core import Node, Pod
from outrider.api.gpunode import Diagnostic, GPUNode
from outrider.config import ConfigError
from outrider.health.catalogue import Catalogue
from outrider.health.findings import Evidence

_LOG: Final = logging.getLogger(__name__)
_LAG_SECONDS: Final = 5.0  # what a busy machine may add to a reading
_QUIET_SECONDS: Final = 5.0  # how often a probe that has nothing to say still says that it works
_NOTHING_SECONDS: Final = 30.0  # how often a probe looks whether there is something to read by now

_NOTHING: Final = Report()


class NoData(Exception):
    """There is nothing to read on this machine; neither success nor fault."""


class Probe(Protocol):
    """One source of evidence."""

    period_seconds: float
    timeout_seconds: float
    wake: asyncio.Event | None
    """Set by the probe when it can be read before the period is over."""

    async def read(self) -> Report:
        """Return what is there to see now. Raises NoData, or anything else where it can't see."""
        ...

    async def close(self) -> None:
        """Let go of files and processes."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows beside a probe's own source, for probes that compare views: each call returns the latest."""

    inventory: Callable[[], Sequence[GPURecord]] = tuple
    """All GPUs that NVML listed, lost ones too; empty before its first reading."""
    findings: Callable[[], Sequence[Evidence]] = tuple
    catalogue: Callable[[], Catalogue]
    use_catalogue: Callable[[Catalogue], None] = lambda _catalogue: None
    """Has everything judged by another catalogue from now on."""
    node: Callable[[], Node | None] = lambda: None
    gpunode: Callable[[], GPUNode | None] = lambda: None
    pods: Callable[[], Iterable[Pod]] = tuple
    """The node's pods."""
    diagnostic: Callable[[], Diagnostic | None] = lambda: None
    """The last active diagnostic, remembered over restarts."""
    kernel_position: Callable[[], KernelPosition | None] = lambda: None
    """How far the kernel log was taken in, remembered over restarts."""
    driver_version: Callable[[], str] = str
    """Version of the NVIDIA driver as NVML told it last."""
    on_pods: Callable[[Callable[[Pod | None, Pod | None], None]], None] = lambda _callback: None
    """Has the callback called with (old, new) at each change of a pod of the node; None stands for absent."""
    on_gpunode: Callable[[Callable[[GPUNode | None, GPUNode | None], None]], None] = lambda _callback: None
    """The same for the node's GPUNode."""


@runtime_checkable
class Attached(Protocol):
    """A probe that compares its source with what the agent knows from elsewhere."""

    def attach(self, around: Surroundings) -> None:
        """Keep ``around``; called once, before the first reading."""
        ...


def attach(probes: Iterable[Probe], around: Surroundings) -> None:
    """Give each probe that compares views what is around it."""
    for source in probes:
        if isinstance(source, Attached):
            source.attach(around)


Factory = Callable[[Config], Probe | None]
"""Builds a probe; None where the configuration does not want it."""
_FACTORIES: dict[str, Factory] = {}


def probe(name: str) -> Callable[[Factory], Factory]:
    """Register what builds the probe of this name. Raises ValueError where the name is taken."""

    def register(factory: Factory) -> Factory:
        if name in _FACTORIES:
            raise ValueError(f"probe {name}: registered twice")
        _FACTORIES[name] = factory
        return factory

    return register


def build(config: Config) -> dict[str, Probe]:
    """Return the probes that the configuration leaves on, by name. Raises ConfigError for a name that is none."""
    if unknown := sorted(set(config.disabled_probes) - set(_FACTORIES)):
        known = ", ".join(sorted(_FACTORIES))
        raise ConfigError(f"disabledProbes: {', '.join(unknown)}: no such probe; there are {known}")
    wanted = {name: factory for name, factory in _FACTORIES.items() if name not in config.disabled_probes}
    built = {name: factory(config) for name, factory in wanted.items()}
    return {name: source for name, source in built.items() if source is not None}


def deadline_seconds(source: Probe) -> float:
    """Return the longest time that may pass between two reports: a pause, a reading, and half as much again."""
    return 1.5 * (max(source.period_seconds, _NOTHING_SECONDS) + source.timeout_seconds) + _LAG_SECONDS


async def run(name: str, source: Probe, sink: Callable[[str, Report], None]) -> None:
    """Read one probe until cancelled and hand every report that says something to ``sink``."""
    clock = asyncio.get_running_loop().time
    told, blind = float("-inf"), ""
    try:
        while True:
            report = await _read(name, source)
            turned = report.blind != blind
            if turned:  # once, not at every reading
                blind = report.blind
                _LOG.warning("probe is blind" if blind else "probe sees again", extra={"probe": name, "problem": blind})
            if report.speaks or turned or clock() - told >= _QUIET_SECONDS:
                sink(name, report)
                told = clock()
            await _pause(source, max(source.period_seconds, _NOTHING_SECONDS if report is _NOTHING else 0))
    finally:
        await source.close()


async def _read(name: str, source: Probe) -> Report:
    started = time.monotonic()
    try:
        async with asyncio.timeout(source.timeout_seconds):
            report = await source.read()
    except NoData as nothing:
        _LOG.debug("probe has no data", extra={"probe": name, "problem": str(nothing)})
        report = _NOTHING
    except TimeoutError:
        report = Report(blind=f"no answer within {source.timeout_seconds:g} s")
    except Exception as error:  # noqa: BLE001 - task supervisor: whatever one probe raises must not stop the others
        report = Report(blind=f"{type(error).__name__}: {error}")
    PROBE_SECONDS.labels(name).observe(time.monotonic() - started)
    PROBE_SUCCESS.labels(name).set(0 if report.blind else 1)
    return report


async def _pause(source: Probe, seconds: float) -> None:
    if source.wake is None:
        await asyncio.sleep(seconds)
        return
    try:
        async with asyncio.timeout(seconds):
            await source.wake.wait()
    except TimeoutError:
        return
    source.wake.clear()
