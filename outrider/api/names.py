"""Every name that Outrider puts on Kubernetes objects: each is spelled here and nowhere else.

Keys live under ``outrider.dev``. Names that other projects own (GPU resource, topology labels) are in the
modules that read them.
"""

from typing import Final

GROUP: Final = "outrider.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Labels
ENABLED_LABEL: Final = "outrider.dev/enabled"  # on a namespace: "true" switches Outrider on for its pods
IGNORE_LABEL: Final = "outrider.dev/ignore"  # on a pod: "true" opts it out
JOB_UID_LABEL: Final = "outrider.dev/job-uid"  # on a pod: UID of the job that owns its gang
RACK_LABEL: Final = "outrider.dev/rack"  # on a node: the rack it stands in

# Annotations on GPUNodes
RELEASE_ANNOTATION: Final = "outrider.dev/release-gpus-until"  # RFC 3339: until then the agent lets go of NVML
RUN_DIAGNOSTIC_ANNOTATION: Final = "outrider.dev/run-diagnostic"  # DiagnosticRequest as JSON

# Label of a DeviceTaintRule: the node whose agent made it (the name, or a digest of one too long for a label)
AGENT_NODE_LABEL: Final = "outrider.dev/agent-node"

# Annotations on pods
TRACEPARENT_ANNOTATION: Final = "outrider.dev/traceparent"  # W3C trace context of the job's trace
CHECKPOINT_REQUEST_ANNOTATION: Final = "outrider.dev/checkpoint-request"  # CheckpointRequest as JSON
INJECTED_ANNOTATION: Final = "outrider.dev/injected"  # version of the webhook that changed the pod
WHY_ANNOTATION: Final = "outrider.dev/why"  # why the pod waits, or where it was planned, in plain words
RETRY_ANNOTATION: Final = "outrider.dev/retry"  # RFC 3339: when kube-scheduler was last asked to try the pod again

# Annotations on pods by which people name a gang of plain pods, and say how close a gang's pods must be
GANG_ANNOTATION: Final = "outrider.dev/gang"  # name of the gang, in the pod's namespace
GANG_SIZE_ANNOTATION: Final = "outrider.dev/gang-size"  # pods that must run together
GANG_MIN_ANNOTATION: Final = "outrider.dev/gang-min"  # pods with which an elastic gang may start
GANG_RANK_ANNOTATION: Final = "outrider.dev/gang-rank"  # the pod's place in its gang, from 0
REQUIRED_LEVEL_ANNOTATION: Final = "outrider.dev/required-level"  # the gang fits in one domain of this level, or waits
PREFERRED_LEVEL_ANNOTATION: Final = "outrider.dev/preferred-level"  # ... or spreads over as few as it can
SEGMENT_PODS_ANNOTATION: Final = "outrider.dev/segment-pods"  # so many consecutive ranks belong together
SEGMENT_LEVEL_ANNOTATION: Final = "outrider.dev/segment-level"  # in one domain of this level

# Scheduling
SCHEDULER_NAME: Final = "outrider-scheduler"
GANG_GATE: Final = "outrider.dev/gang"  # scheduling gate, lifted by the planner once the whole gang is planned

# Node taint and condition
UNHEALTHY_TAINT: Final = "outrider.dev/unhealthy"  # NoSchedule; value: reason of the verdict
GPU_CONDITION: Final = "GPUHealthy"

# Field managers: who wrote a field, seen in managedFields
AGENT_MANAGER: Final = "outrider-node-agent"
PLANNER_MANAGER: Final = "outrider-planner"
WEBHOOK_MANAGER: Final = "outrider-webhook"
REMEDIATION_MANAGER: Final = "outrider-remediation"
HOOKS_MANAGER: Final = "outrider-hooks"

# Leases
PLANNER_LEASE: Final = "outrider-planner"
SCHEDULER_LEASE: Final = "outrider-scheduler"  # kube-scheduler's own, named in its configuration
REMEDIATION_LEASE: Final = "outrider-remediation"
WEBHOOK_LEASE: Final = "outrider-webhook"

# Objects of the chart that others look up
RELEASE_NAMESPACE: Final = "outrider-system"  # where the chart is installed unless someone chose otherwise
REMEDIATION_CONFIG: Final = "outrider-remediation"  # ConfigMap
SCHEDULER_CONFIG: Final = "outrider-scheduler"  # ConfigMap
WEBHOOK_CONFIGURATION: Final = "outrider-webhook"
WEBHOOK_SERVICE: Final = "outrider-webhook"
WEBHOOK_SECRET: Final = "outrider-webhook-tls"  # noqa: S105 - the name of a Secret, not a secret

# The in-pod contract: one emptyDir shared by the pod's containers and read by the node agent
INPOD_VOLUME: Final = "outrider"
INPOD_DIR: Final = "/outrider"
INPOD_INIT_CONTAINER: Final = "outrider-inpod"
CHECKPOINT_REQUEST_FILE: Final = "ckpt.request"
CHECKPOINT_DONE_PREFIX: Final = "ckpt.done."  # then the rank
RANK_FILE_PREFIX: Final = "rank."  # then the rank
