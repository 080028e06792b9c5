"""Which TrainingPolicy holds for a job, and the time it grants for a checkpoint. Pure."""

from collections.abc import Iterable

from outrider.api.core import Pod
from outrider.api.remediation import AffectedJob
from outrider.api.trainingpolicy import Checkpoint, TrainingPolicy, TrainingPolicySpec
from remediation.world import World


def policy_for(pod: Pod, policies: Iterable[TrainingPolicy]) -> TrainingPolicySpec:
    """Return the settings of a pod: most selector labels first, then the lowest name; the defaults where none match."""
    matching = [policy for policy in policies if _matches(policy.spec, pod)]
    chosen = min(matching, key=lambda policy: (-len(policy.spec.selector), policy.metadata.name), default=None)
    return chosen.spec if chosen else TrainingPolicySpec()


def _matches(spec: TrainingPolicySpec, pod: Pod) -> bool:
    in_namespace = not spec.namespaces or pod.metadata.namespace in spec.namespaces
    return in_namespace and spec.selector.items() <= pod.metadata.labels.items()


def grace_seconds(job: AffectedJob, world: World) -> int:
    """Return the longest time that any of the job's pods is granted for a checkpoint, in seconds."""
    specs = (policy_for(pod, world.policies.values()) for pod in world.job_pods(job.uid, job.namespace))
    return max((spec.checkpoint.grace_seconds for spec in specs), default=Checkpoint().grace_seconds)
