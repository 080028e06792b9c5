"""How many nodes may be under remediation at once. The breaker blocks new harm and lets what runs finish. Pure."""

import math

from outrider.api.remediation import Remediation
from remediation.config import Budget
from remediation.episodes import sound
from remediation.rungs import Context


def allowed_nodes(budget: Budget, gpu_nodes: int) -> int:
    """Return the limit in nodes: the absolute one or the percentage, rounded up; the smaller."""
    return min(budget.max_nodes, math.ceil(gpu_nodes * budget.max_percent / 100))


def refusal(context: Context) -> str:
    """Return why the episode may not begin to act now, empty where it may.

    An episode under way is never stopped. One whose jobs are all being moved already adds no harm, and holding it
    back would only keep those jobs down.
    """
    if context.status.steps:
        return ""
    acting = [other for other in context.world.open_episodes() if other.status.steps and sound(other)]
    nodes = {other.spec.node for other in acting} - {context.node}
    limit = allowed_nodes(context.config.budget, len(context.world.gpu_nodes))
    if len(nodes) < limit or _jobs(context.episode) <= {uid for other in acting for uid in _jobs(other)}:
        return ""
    return f"budget: {len(nodes)} of at most {limit} nodes are under remediation ({', '.join(sorted(nodes)) or 'none'})"


def _jobs(episode: Remediation) -> set[str]:
    return {job.uid for job in episode.status.jobs}
