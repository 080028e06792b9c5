"""What the structs don't say about Outrider's custom resources: scope, short names, printer columns, CEL rules."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode
from outrider.api.remediation import Remediation
from outrider.api.trainingpolicy import TrainingPolicy


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; ``wide`` ones show with -o wide."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        """Return the entry of additionalPrinterColumns."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return entry | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True)
class Rule:
    """A CEL rule on the spec or status, and what the user reads when it is broken."""

    rule: str
    message: str
    field: str = "spec"
    path: str = ""

    def manifest(self) -> dict[str, str]:
        """Return the entry of x-kubernetes-validations."""
        entry = {"rule": self.rule, "message": self.message}
        return entry | ({"fieldPath": self.path} if self.path else {})


@dataclass(frozen=True)
class CustomResource:
    """One custom resource."""

    struct: type[msgspec.Struct]
    plural: str
    scope: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


def _fixed(field: str, path: str) -> Rule:
    unset = f"!has(self.{field}) && !has(oldSelf.{field})"
    both = f"has(self.{field}) && has(oldSelf.{field}) && self.{field} == oldSelf.{field}"
    return Rule(
        f"({unset}) || ({both})", f"{path} can't change: an episode is about one cause on one node", path=f".{field}"
    )


RESOURCES: Final = (
    CustomResource(
        GPUNode,
        "gpunodes",
        "Cluster",
        ("gn",),
        (
            Column("Health", ".status.health"),
            Column("Score", ".status.score", "integer"),
            Column("Verdict", ".status.verdict"),
            Column("Reason", ".status.reason"),
            Column("Mode", ".spec.mode"),
            Column("Observed", ".status.observedAt", "date"),
            Column("Message", ".status.message", wide=True),
            Column("Driver", ".status.driverVersion", wide=True),
            _AGE,
        ),
        (
            Rule(
                "!has(self.mode) || self.mode == 'Auto' || (has(self.reason) && self.reason.trim() != '')",
                "spec.reason is needed while mode is not Auto: say why, so that others know when to lift it",
                path=".reason",
            ),
        ),
    ),
    CustomResource(
        GangPlacement,
        "gangplacements",
        "Namespaced",
        ("gp",),
        (
            Column("Job", ".spec.jobName"),
            Column("Size", ".spec.size", "integer"),
            Column("State", ".status.state"),
            Column("Domain", ".status.domain"),
            Column("Message", ".status.message"),
            Column("Revision", ".status.revision", "integer", wide=True),
            _AGE,
        ),
        (
            Rule(
                "self == oldSelf",
                "spec can't change: it names the gang. Delete the object, and the planner writes a new one",
            ),
            Rule(
                "!has(oldSelf.revision) || (has(self.revision) && self.revision >= oldSelf.revision)",
                "status.revision can't go back: a newer plan exists. Read it and plan again",
                "status",
                ".revision",
            ),
        ),
    ),
    CustomResource(
        Remediation,
        "remediations",
        "Cluster",
        ("rem",),
        (
            Column("Node", ".spec.node"),
            Column("Domain", ".spec.domain.name"),
            Column("Cause", ".spec.cause"),
            Column("Phase", ".status.phase"),
            Column("Mode", ".status.mode"),
            Column("Message", ".status.message", wide=True),
            _AGE,
        ),
        (
            Rule(
                "(has(self.node) && self.node != '') != has(self.domain)",
                "spec names either the node or the domain that the episode is about: give one of them",
                path=".node",
            ),
            _fixed("node", "spec.node"),
            _fixed("domain", "spec.domain"),
            _fixed("cause", "spec.cause"),
            _fixed("subjectId", "spec.subjectId"),
            _fixed("bootId", "spec.bootId"),
            Rule(
                "!oldSelf.cancel || self.cancel",
                "a cancelled episode stays cancelled: delete the object to let a new one begin",
                path=".cancel",
            ),
        ),
    ),
    CustomResource(
        TrainingPolicy,
        "trainingpolicies",
        "Cluster",
        ("tpol",),
        (
            Column("Inject", ".spec.inject", "boolean"),
            Column("Spares", ".spec.spares", "integer"),
            Column("Grace", ".spec.checkpoint.graceSeconds", "integer"),
            Column("Accepted", '.status.conditions[?(@.type=="Accepted")].status'),
            _AGE,
        ),
    ),
)
