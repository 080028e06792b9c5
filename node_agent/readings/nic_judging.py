"""From looks at the RDMA adapters to evidence: what is bad now, on which device or port. Pure but for its own memory.

Only devices for training are judged (nic_inventory.py tells which). A port must be up where it was up before, or where
more than half of its siblings are: one that was never cabled is no fault. Counters are judged as rates. Thresholds are
those of gpud and NVSentinel; what these call fatal only stops new work here: running work finds out itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from node_agent.probes.report import States
from node_agent.readings.nic_inventory import (
    Inventory,
    NICRecord,
    judging,
    recent_flaps,
    subject_names,
    training,
    updated,
    with_flaps,
)
from node_agent.readings.nic_readings import Look, NICReading, PortReading, PortState, name_of
from node_agent.readings.rises import Rises, Steps
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import NIC_OWNER, Evidence, seen

SOURCE: Final = "nics"
LINK_DOWNED: Final = "link_downed"
_LOOKS_MISSING: Final = 3  # a driver that reloads takes a device away for a moment
_FLAPS: Final = 3
_ETHERNET: Final = "Ethernet"

T = TypeVar("T")


class CounterRule(msgspec.Struct, frozen=True):
    """A counter that may rise by at most ``limit`` within ``window_seconds``."""

    code: str
    counter: str
    limit: int
    window_seconds: float

    @property
    def name(self) -> str:
        """Tells the rule from all others."""
        return f"{self.code} {self.counter}"


COUNTER_RULES: Final = (
    CounterRule("nic/symbol-errors", "symbol_error", 100, 10),
    CounterRule("nic/symbol-errors-lasting", "symbol_error", 120, 3600),
    CounterRule("nic/link-recovery", "link_error_recovery", 5, 60),
    CounterRule("nic/buffer-overrun", "excessive_buffer_overrun_errors", 0, 3600),
    CounterRule("nic/link-integrity", "local_link_integrity_errors", 0, 3600),
    CounterRule("nic/receiver-not-ready", "rnr_nak_retry_err", 0, 3600),
    CounterRule("nic/roce-slow-restart", "roce_slow_restart", 100, 10),
    CounterRule("nic/efa-no-completion", "no_completion_cmds", 0, 3600),
    CounterRule("nic/efa-command-errors", "cmds_err", 10, 60),
    CounterRule("nic/efa-drops", "rx_drops", 1000, 10),
    CounterRule("nic/efa-remote-errors", "unresponsive_remote_events", 10, 10),
    CounterRule("nic/efa-remote-errors", "impaired_remote_conn_events", 10, 10),
)
COUNTERS: Final = frozenset({LINK_DOWNED, *(rule.counter for rule in COUNTER_RULES)})
"""The counters worth reading."""


class _Siblings(msgspec.Struct, frozen=True, kw_only=True):
    """What is normal among the devices for training."""

    up: frozenset[int]
    """Numbers of the ports that are up on more than half of the devices."""
    rate: float
    """Gbit/s of more than half of the ports that are up; 0 where there is no such rate."""
    lanes: int | None
    """PCIe lanes of more than half of them; None where there is no such number, or only one device."""


class NICWatch:
    """Judges look after look."""

    def __init__(self, ignored: Collection[str] = (), expected: int = 0) -> None:
        self._ignored, self._expected = tuple(ignored), expected
        self._rules = [(rule, Rises(rule.window_seconds)) for rule in COUNTER_RULES]
        self._absent: Counter[str] = Counter()
        self._losses: dict[str, tuple[int | None, int | None]] = {}
        self._lost: set[str] = set()

    @property
    def rises(self) -> dict[str, Steps]:
        """Rises of counters that still count, by counter and window: what a restart must not lose."""
        return {rule.name: rises.steps for rule, rises in self._rules if rises.steps}

    def restore(self, kept: Mapping[str, Steps]) -> None:
        """Take up what was kept in the same boot."""
        for rule, rises in self._rules:
            rises.restore(kept.get(rule.name, {}))

    def judge(self, known: Inventory, look: Look, now: float, monotonic: float) -> tuple[Inventory, States]:
        """Return the inventory after the look, and all that is bad. ``now`` is seconds since 1970."""
        inventory = updated(known, look)
        records = inventory.by_address
        chosen = training([record for record in inventory.nics if not self._is_ignored(record)])
        nics = {nic.pci_address: nic for nic in look.nics}
        names = {address: name for address, name in subject_names(records, nics).items() if address in chosen}
        here = [nics[address] for address in sorted(names) if address in nics]
        records |= {nic.pci_address: self._after_flaps(nic, records[nic.pci_address], now) for nic in here}
        siblings = _siblings(here)
        bad = [evidence for nic in here for evidence in self._of_nic(nic, records, siblings, now, monotonic)]
        bad += self._missing(names, nics, records, now)
        bad += self._count(here, bad, now)
        nics_kept = [records[record.pci_address] for record in inventory.nics]
        kept = judging(msgspec.structs.replace(inventory, nics=nics_kept), names.values(), now)
        readable = {nic.name for nic in here if all(port.readable for port in nic.ports)} | kept.dropped.keys()
        return kept, States(bad=tuple(bad), readable=frozenset({"", *(NIC_OWNER + name for name in readable)}))

    def _is_ignored(self, record: NICRecord) -> bool:
        return any(fnmatchcase(record.name, pattern) for pattern in self._ignored)

    def _of_nic(
        self,
        nic: NICReading,
        records: Mapping[str, NICRecord],
        siblings: _Siblings,
        now: float,
        monotonic: float,
    ) -> Iterator[Evidence]:
        record = records[nic.pci_address]
        yield from _device(nic, siblings, now)
        yield from self._counters(nic.name, nic.counters, now, monotonic)
        for port in nic.ports:
            subject = f"{nic.name}/{port.number}"
            yield from _port(subject, port, record, siblings, now)
            yield from _flapped(subject, record.ports[port.number].flaps, now)
            yield from self._counters(subject, port.counters, now, monotonic)

    def _counters(self, subject: str, counters: Mapping[str, int], now: float, monotonic: float) -> Iterator[Evidence]:
        for rule, rises in self._rules:
            value = counters.get(rule.counter)
            if value is None:
                continue
            risen = rises.note(subject, value, monotonic)
            if risen > rule.limit:
                line = f"{subject}: {rule.counter} rose by {risen:.0f} in {rule.window_seconds:g} s, limit {rule.limit}"
                yield _nic(rule.code, subject, line, now)

    def _after_flaps(self, nic: NICReading, record: NICRecord, now: float) -> NICRecord:
        for port in nic.ports:
            flaps = self._flaps(f"{nic.pci_address}/{port.number}", port, nic.link_layer)
            record = with_flaps(record, port.number, flaps, now)
        return record

    def _flaps(self, key: str, port: PortReading, link_layer: str) -> int:
        """Return how often the link was lost and came back since it was last seen up.

        Losses between two looks are found by the link's own counter, on Ethernet also by that of the network device,
        which on InfiniBand moves whenever somebody configures IP.
        """
        if not port.readable:
            return 0
        if not port.up:
            if key in self._losses:
                self._lost.add(key)
            return 0
        losses = (port.counters.get(LINK_DOWNED), port.carrier_losses if link_layer == _ETHERNET else None)
        before = self._losses.get(key, losses)
        self._losses[key] = losses
        seen_down = int(key in self._lost)
        self._lost.discard(key)
        return max(seen_down, *map(_grown, losses, before))

    def _missing(
        self,
        chosen: Mapping[str, str],
        nics: Mapping[str, NICReading],
        records: Mapping[str, NICRecord],
        now: float,
    ) -> Iterator[Evidence]:
        gone = dict(_gone(chosen, nics, records, now))
        self._absent = Counter({key: self._absent[key] + 1 for key in gone})
        for key, evidence in gone.items():
            if self._absent[key] >= _LOOKS_MISSING:
                yield evidence

    def _count(self, here: Collection[NICReading], bad: Collection[Evidence], now: float) -> list[Evidence]:
        """Tell of too few devices only where nothing else tells which one it is."""
        usable = sum(any(port.up for port in nic.ports) for nic in here)
        told = any(evidence.code in ("nic/missing", "nic/port-down", "nic/port-init") for evidence in bad)
        if told or self._absent or usable >= self._expected:
            return []
        line = f"{usable} RDMA devices have a port up, {self._expected} are expected"
        return [seen("nic/count", now, line=line, source=SOURCE)]


def _grown(after: int | None, then: int | None) -> int:
    """Return the rise of a counter; negative, and so of no weight, where it began anew."""
    return 0 if after is None or then is None else after - then


def _siblings(here: Collection[NICReading]) -> _Siblings:
    up = [port for nic in here for port in nic.ports if port.up]
    numbers = Counter(port.number for port in up)
    return _Siblings(
        up=frozenset(number for number, count in numbers.items() if 2 * count > len(here)),
        rate=_usual(port.rate for port in up) or 0.0,
        lanes=_usual(nic.lanes for nic in here) if len(here) > 1 else None,
    )


def _usual(values: Iterable[T | None]) -> T | None:
    """Return the value of more than half of them, None where there is no such."""
    counts = Counter(values)
    value, count = counts.most_common(1)[0] if counts else (None, 0)
    return value if 2 * count > counts.total() else None


def _gone(
    chosen: Mapping[str, str], nics: Mapping[str, NICReading], records: Mapping[str, NICRecord], now: float
) -> Iterator[tuple[str, Evidence]]:
    for address, name in chosen.items():
        record, nic = records[address], nics.get(address)
        if nic is None:
            yield address, _nic("nic/missing", name, f"{name} at {address} is no longer there", now)
            continue
        here = {port.number for port in nic.ports}
        for number in sorted(record.ports.keys() - here):
            line = f"{name} no longer has port {number}"
            yield f"{address}/{number}", _nic("nic/port-missing", f"{name}/{number}", line, now)


def _device(nic: NICReading, siblings: _Siblings, now: float) -> Iterator[Evidence]:
    if nic.lanes is not None and nic.lanes_possible is not None and nic.lanes < nic.lanes_possible:
        line = f"{nic.name}: PCIe width x{nic.lanes}, x{nic.lanes_possible} is possible"
        yield _nic("nic/pcie-width" if nic.lanes != siblings.lanes else "nic/pcie-narrow", nic.name, line, now)
    if nic.transfers is not None and nic.transfers_possible is not None and nic.transfers < nic.transfers_possible:
        line = f"{nic.name}: PCIe speed {nic.transfers:g} GT/s, {nic.transfers_possible:g} GT/s is possible"
        yield _nic("nic/pcie-speed", nic.name, line, now)
    if not nic.verbs:
        yield _nic("nic/verbs-missing", nic.name, f"{nic.name}: the kernel offers no uverbs device for it", now)
    yield from _nodes(nic, now)


def _nodes(nic: NICReading, now: float) -> Iterator[Evidence]:
    for code, prefix in (("nic/device-node", "uverbs"), ("nic/management-node", "umad")):
        missing = [node for node in nic.nodes_missing if node.startswith(prefix)]
        if missing:
            line = f"{nic.name}: /dev/infiniband lacks {', '.join(missing)}"
            yield _nic(code, nic.name, line, now)


def _port(subject: str, port: PortReading, record: NICRecord, siblings: _Siblings, now: float) -> Iterator[Evidence]:
    if port.problem:
        yield _nic("nic/unreadable", subject, f"{subject}: {port.problem}", now)
        return
    kept = record.ports[port.number]
    state = f"{subject}: state {name_of(port.state)}, physical state {name_of(port.phys_state) or 'unknown'}"
    if port.logical is None:
        yield _nic("nic/unreadable", subject, f"{state}: no state that is known", now)
    elif port.up:
        yield from _slow(subject, port, max(kept.best_rate, siblings.rate), now)
    elif kept.was_up or port.number in siblings.up:
        linked = port.logical in (PortState.INIT, PortState.ARMED)
        yield _nic("nic/port-init" if linked else "nic/port-down", subject, state, now)


def _slow(subject: str, port: PortReading, normal: float, now: float) -> Iterator[Evidence]:
    if port.rate is not None and port.rate < normal:
        line = f"{subject}: {port.rate:g} Gbit/s, {normal:g} Gbit/s before or on its siblings"
        yield _nic("nic/rate-low", subject, line, now)


def _flapped(subject: str, flaps: Iterable[float], now: float) -> Iterator[Evidence]:
    count = len(recent_flaps(flaps, now))
    if count:
        code = "nic/flapping" if count >= _FLAPS else "nic/flap"
        times = "once" if count == 1 else f"{count} times"
        yield _nic(code, subject, f"{subject}: the link was lost and came back {times} in 12 hours", now)


def _nic(code: str, subject: str, line: str, now: float) -> Evidence:
    return seen(code, now, subject=SubjectKind.NIC, subject_id=subject, line=line, source=SOURCE)
