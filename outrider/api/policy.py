"""PodDisruptionBudget of Kubernetes, in the fields that tell how many pods may be evicted now."""

from typing import Any

from outrider.api.meta import ObjectMeta, Resource


class PodDisruptionBudgetSpec(Resource, frozen=True, kw_only=True):
    """Whose evictions are limited: ``selector`` is a LabelSelector."""

    selector: dict[str, Any] | None = None


class PodDisruptionBudgetStatus(Resource, frozen=True, kw_only=True):
    """How many of the pods may go now."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Resource, frozen=True, kw_only=True):
    """A limit of evictions."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
