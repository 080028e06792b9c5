"""Where a job would land: what `outrider plan` answers, and the scheduler plugin works out."""

from outrider.api.gangplacement import RankAssignment, RejectedAlternative
from outrider.api.meta import Resource, Timestamp
from outrider.api.why import Why


class LandingGang(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """One gang, or one pod on its own, of the job."""

    name: str
    """Kind namespace/name."""
    pods: int
    fits: bool
    message: str
    """Where it would go, or what it would wait for."""
    domain: str = ""
    ranks: list[RankAssignment] = []
    spares: list[str] = []
    rejected: list[RejectedAlternative] = []
    why: Why | None = None


class Landing(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """The answer for a manifest, on the cluster as it was at ``taken``."""

    taken: Timestamp
    fits: bool
    gangs: list[LandingGang]
    notes: list[str] = []
    """What else people should know, such as objects of the manifest that make no pods."""
