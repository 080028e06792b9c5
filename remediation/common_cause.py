"""What a sick node shares with others may be the cause: then it gets no episode of its own. Pure."""

from typing import Final

from outrider.api.remediation import Remediation
from outrider.api.times import parse_rfc3339
from outrider.health.causes import SharedCause
from outrider.health.domains import SKEW_SECONDS, Suspect
from outrider.topology import Domain
from remediation.world import World

TROUBLE: Final = {
    SharedCause.FABRIC: "NVLink trouble",
    SharedCause.NETWORK: "network trouble",
    SharedCause.POWER: "GPUs gone from the bus, or trouble with power or cooling",
    SharedCause.SILENCE: "no word on their health",
}


def domain_of(episode: Remediation) -> Domain | None:
    """Return the domain that the episode is about, None for one about a node."""
    ref = episode.spec.domain
    return Domain(ref.level, ref.name) if ref else None


def common_cause(node: str, world: World) -> Suspect | None:
    """Return the suspect that explains what is hard against the node; None too where a person lifted the suspicion."""
    gpu_node = world.gpu_nodes.get(node)
    suspect = world.outlook.suspect_of(node, gpu_node.status) if gpu_node else None
    return None if suspect is None or lifted(suspect, world) else suspect


def waits(node: str, world: World) -> bool:
    """True where the node gets no episode of its own now: what it shares with others is the cause, or may turn out so.

    What begins to fail on two neighbours is given GATHER_SECONDS to show on others.
    """
    return node in world.outlook.gathering or common_cause(node, world) is not None


def explanation(node: str, suspect: Suspect) -> str:
    """Return why nothing is done on the node alone. No count is in it, so that it is told once."""
    return (
        f"what is hard against {node} is put down to {suspect.domain}, where many nodes show {TROUBLE[suspect.cause]} "
        f"at once; no pod is moved off {node} for it. Next: kubectl get remediations"
    )


def cause_code(suspect: Suspect) -> str:
    """Return spec.cause of an episode about the suspect."""
    return f"domain/{suspect.cause}"


def lifted(suspect: Suspect, world: World) -> bool:
    """True where a person cancelled an episode about this very trouble, not about one that was over before."""
    return any(old.spec.cancel and _created(old) >= suspect.since - SKEW_SECONDS for old in episodes_of(suspect, world))


def episodes_of(suspect: Suspect, world: World) -> list[Remediation]:
    """Return all episodes about the suspect's domain and kind of trouble, in order of name."""
    cause = cause_code(suspect)
    return [old for old in world.domain_episodes() if domain_of(old) == suspect.domain and old.spec.cause == cause]


def _created(episode: Remediation) -> float:
    try:
        return parse_rfc3339(episode.metadata.creation_timestamp or "")
    except ValueError:
        return float("inf")
