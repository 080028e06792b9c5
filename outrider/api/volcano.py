"""Volcano's Job (batch.volcano.sh/v1alpha1), in the fields that tell a gang's size and order."""

from outrider.api.core import Owner, PodTemplate
from outrider.api.meta import Resource


class TaskDependency(Resource, frozen=True, kw_only=True):
    """Tasks that must run first."""

    name: list[str] = []


class Task(Resource, frozen=True, kw_only=True):
    """A number of equal pods."""

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: PodTemplate = PodTemplate()
    depends_on: TaskDependency | None = None


class VolcanoJobSpec(Resource, frozen=True, kw_only=True):
    """The tasks of the job."""

    min_available: int | None = None
    tasks: list[Task] = []


class VolcanoJob(Owner, frozen=True, kw_only=True):
    """A Volcano Job."""

    spec: VolcanoJobSpec = VolcanoJobSpec()
