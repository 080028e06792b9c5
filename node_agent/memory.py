"""What the agent knows, and saves over restarts and reboots."""

import msgspec

from node_agent.inventory import GPURecord
from outrider.api.gpunode import Diagnostic, Verdict
from outrider.health.findings import Evidence, Time
from outrider.health.offenders import Offender
from outrider.health.recurrence import Accusation


class Announced(msgspec.Struct, frozen=True):
    """The last change that users were told of, so that a restart does not tell it again."""

    verdict: Verdict = Verdict.NONE
    reason: str = ""
    gpus: dict[str, str] = {}
    """UUID of each GPU that users know to have a hard verdict, to its reason."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that the kubelet has given a GPU to."""

    pod: str
    """UID."""
    since: Time
    """When it was first seen to have it: what happened before may be another's."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """All that the agent knows; saved over restarts and reboots."""

    boot_id: str = ""
    sequence: int = -1
    """Last kernel log record of this boot that has been taken in."""
    findings: list[Evidence] = []
    inventory: list[GPURecord] = []
    addresses: dict[str, str] = {}
    """Subject id of a PCI address to UUID."""
    nics: list[str] = []
    """Names of the node's network adapters, sorted."""
    driver_version: str = ""
    holders: dict[str, Holder] = {}
    """Who has which GPU, by its UUID."""
    accusations: list[Accusation] = []
    """Faults of programs that may be the hardware's."""
    offenders: list[Offender] = []
    """Boards that failed hard within the last days."""
    low: list[str] = []
    """Owners whose score was low when judged last: they need a better one to be well again."""
    announced: Announced = Announced()
    diagnostic: Diagnostic | None = None
    """The last active diagnostic, so that a restart does not run it again."""
