"""JobSet (jobset.x-k8s.io/v1alpha2), in the fields that tell a gang's size and order. TrainJobs run as JobSets."""

from outrider.api.core import JobSpec, Owner
from outrider.api.meta import ObjectMeta, Resource


class JobTemplate(Resource, frozen=True, kw_only=True):
    """What the set creates Jobs from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class DependsOn(Resource, frozen=True, kw_only=True):
    """A replicated job that must be Ready or Complete first."""

    name: str = ""
    status: str = ""


class ReplicatedJob(Resource, frozen=True, kw_only=True):
    """A number of equal Jobs."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: list[DependsOn] = []


class StartupPolicy(Resource, frozen=True, kw_only=True):
    """Order in which replicated jobs start."""

    startup_policy_order: str = ""


class JobSetSpec(Resource, frozen=True, kw_only=True):
    """The jobs of the set."""

    replicated_jobs: list[ReplicatedJob] = []
    startup_policy: StartupPolicy | None = None


class JobSet(Owner, frozen=True, kw_only=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()
