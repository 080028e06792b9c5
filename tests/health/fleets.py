"""Clusters of simulated GPUNodes as values, with what their agents would have published."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from outrider.api.gpunode import Finding, GPUNodeStatus, Health, SubjectKind, Verdict
from outrider.api.times import rfc3339
from outrider.health.domains import Outlook, judge_domains
from outrider.topology import Domain, domains_of, levels_from

NOW = 1_800_000_000.0
STALE_SECONDS = 60.0
LEVELS = levels_from("nvidia")
CLIQUE = "nvidia.com/gpu.clique"
HARD = {"xid/145": Verdict.RESET, "xid/74": Verdict.RESET, "xid/79": Verdict.REBOOT, "xid/95": Verdict.RESET}


def labels(number: int, *, leaf: int, rack: int = 0, clique: int = 0) -> dict[str, str]:
    """Label node ``number`` in groups of the given sizes; 0 leaves a label out. Eight leaves make a spine."""
    found = {
        "network.topology.nvidia.com/spine": f"s{number // (8 * leaf)}",
        "network.topology.nvidia.com/leaf": f"l{number // leaf}",
    }
    if rack:
        found["outrider.dev/rack"] = f"r{number // rack}"
    if clique:
        found[CLIQUE] = f"uuid.{number // clique}"
    return found


def finding(
    code: str, at: float, verdict: Verdict | None = None, last: float | None = None, count_of: int = 1
) -> Finding:
    hard = HARD.get(code, Verdict.WATCH) if verdict is None else verdict
    return Finding(
        code=code,
        subject=SubjectKind.GPU,
        subject_id="GPU-a",
        first_seen=rfc3339(at),
        last_seen=rfc3339(at if last is None else last),
        verdict=hard,
        count=count_of,
    )


@dataclass
class Cluster:
    """Nodes n0, n1, ... and what is known of each."""

    labels: Mapping[str, Mapping[str, str]]
    now: float = NOW
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int, *, leaf: int = 16, rack: int = 0, clique: int = 0) -> "Cluster":
        return cls({f"n{one}": labels(one, leaf=leaf, rack=rack, clique=clique) for one in range(size)})

    @property
    def places(self) -> dict[str, tuple[Domain, ...]]:
        return {name: domains_of(name, given, LEVELS) for name, given in self.labels.items()}

    def add(
        self, numbers: Iterable[int], code: str, *, ago: float = 30.0, spread: float = 0.01, **more: object
    ) -> None:
        """Give the nodes one finding each, the first ``ago`` seconds ago and each later one ``spread`` seconds on."""
        for position, number in enumerate(numbers):
            made = finding(code, self.now - ago + spread * position, **more)  # type: ignore[arg-type]
            self.findings.setdefault(f"n{number}", []).append(made)

    def silence(self, numbers: Iterable[int], *, ago: float) -> None:
        for number in numbers:
            self.observed[f"n{number}"] = self.now - ago

    def all(self, code: str) -> list[Finding]:
        return [one for found in self.findings.values() for one in found if one.code == code]

    def status(self, name: str) -> GPUNodeStatus:
        found = self.findings.get(name, [])
        verdict = max((one.verdict for one in found), key=lambda one: one.severity, default=Verdict.NONE)
        return GPUNodeStatus(
            health=Health.UNHEALTHY if verdict.hard else Health.HEALTHY,
            verdict=verdict,
            reason=next((one.code for one in found if one.verdict is verdict), ""),
            boot_id="boot-1",
            findings=found,
            observed_at=rfc3339(self.observed.get(name, self.now)),
        )

    @property
    def statuses(self) -> dict[str, GPUNodeStatus]:
        return {name: self.status(name) for name in self.labels}

    def judge(self) -> Outlook:
        return judge_domains(self.statuses, self.places, self.now, STALE_SECONDS)

    def blamed(self) -> list[tuple[str, str]]:
        """Return the suspects as people name them, with the cause."""
        return [(str(suspect.domain), str(suspect.cause)) for suspect in self.judge().suspects]


def unknown(status: GPUNodeStatus) -> GPUNodeStatus:
    return msgspec.structs.replace(status, health=Health.UNKNOWN)
