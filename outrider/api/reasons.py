"""Reasons and states shown to users: PascalCase for conditions and events, few and stable.

FailedNodes texts are counted by kube-scheduler when identical, so they carry no per-node numbers and stay short
(extender/v1: equal texts are grouped into "N node(s) TEXT", cut at 1,024 bytes in all).
"""

from typing import Final

# Node condition GPUHealthy
HEALTHY: Final = "Healthy"
DEGRADED: Final = "Degraded"
UNHEALTHY: Final = "Unhealthy"
MONITOR_BLIND: Final = "MonitorBlind"

# Events
GPU_UNHEALTHY: Final = "GPUUnhealthy"
GPU_RECOVERED: Final = "GPURecovered"
NODE_TAINTED: Final = "NodeTainted"
NODE_UNTAINTED: Final = "NodeUntainted"
DEVICE_TAINTED: Final = "DeviceTainted"
DEVICE_UNTAINTED: Final = "DeviceUntainted"
GANG_PLANNED: Final = "GangPlanned"
GANG_WAITING: Final = "GangWaiting"
RANK_REPLACED: Final = "RankReplaced"
GANG_RELEASED: Final = "GangReleased"  # a plan that did not bind was given up: the pods are evicted and made anew
GANG_PREEMPTED: Final = "GangPreempted"  # evicted whole, for a gang of higher priority
GANG_PREEMPTING: Final = "GangPreempting"
REMEDIATION_STARTED: Final = "RemediationStarted"
CHECKPOINT_REQUESTED: Final = "CheckpointRequested"
CHECKPOINT_ACKNOWLEDGED: Final = "CheckpointAcknowledged"
CHECKPOINT_EXPIRED: Final = "CheckpointExpired"
CHECKPOINT_SKIPPED: Final = "CheckpointSkipped"  # no rank could be asked; the job resumes from its own last one
RANK_MOVED: Final = "RankMoved"
MOVE_BLOCKED: Final = "MoveBlocked"  # eviction refused for too long, or no new pod came: a person is needed
RESUME_NOT_SEEN: Final = "ResumeNotSeen"
NODE_ISOLATED: Final = "NodeIsolated"  # end of an episode: no training pod is left, the taint stays
REMEDIATION_CANCELLED: Final = "RemediationCancelled"
DOMAIN_SUSPECT: Final = "DomainSuspect"  # many nodes in trouble at once: what they share is looked at, not each node
DOMAIN_CLEARED: Final = "DomainCleared"
COMMON_CAUSE: Final = "CommonCause"  # why a sick node gets no episode of its own
APPLICATION_CRASHED: Final = "ApplicationCrashed"  # one program failed on all its nodes at once: not the hardware
TRAINING_RESUMED: Final = "TrainingResumed"
WOULD_ACT: Final = "WouldAct"  # dryRun: the event says what enforce would have done
UNINSTALLED: Final = "OutriderUninstalled"  # the pod waits for a scheduler that is gone
NODE_AVOIDED: Final = "NodeAvoided"  # pods fail there as they start: nothing new is placed there for a while
INVALID_SPEC: Final = "InvalidSpec"  # a hand-edited object that cannot be understood; it is ignored

# FailedNodes: why the extender drops a node
NODE_UNHEALTHY: Final = "GPU hardware unhealthy"
NODE_UNKNOWN_HEALTH: Final = "GPU health unknown"
NODE_QUARANTINED: Final = "node quarantined by an administrator"
NODE_RESERVED: Final = "reserved for another gang"
NODE_NOT_PLANNED: Final = "not in the gang's placement"
NODE_NOT_SEEN: Final = "node not yet seen by Outrider"
GANG_NOT_PLANNED: Final = "gang not planned yet"
NODE_NO_GPU: Final = "not enough free GPUs"
NODE_REJECTS: Final = "rejects or kills pods as they start"  # the node looks free because it swallows them
NODE_SPARE: Final = "kept as a spare"
NODE_SUSPECT: Final = "in a suspect domain"

# Condition of Outrider's own resources
ACCEPTED: Final = "Accepted"
PLANNED: Final = "Planned"  # of a GangPlacement: its pods have nodes
