"""TrainingPolicy: which training pods get which settings. Written by people."""

from typing import Annotated, Final

import msgspec

from outrider.api.meta import Condition, ObjectMeta, Resource, Root
from outrider.api.names import API_VERSION

GRACE_MAX_SECONDS: Final = 600


class Checkpoint(Resource, frozen=True, kw_only=True):
    """Bounds of a checkpoint on request."""

    grace_seconds: Annotated[
        int,
        msgspec.Meta(ge=0, le=GRACE_MAX_SECONDS, description="longest wait for a requested checkpoint"),
    ] = 60


class Elastic(Resource, frozen=True, kw_only=True):
    """torchrun settings injected where the user set none."""

    max_restarts: Annotated[
        int, msgspec.Meta(ge=0, le=1000, description="PET_MAX_RESTARTS: how often workers may meet again")
    ] = 100
    keep_alive_interval_seconds: Annotated[
        int, msgspec.Meta(ge=1, le=60, description="seconds between signs of life of a worker group")
    ] = 1
    keep_alive_max_attempt: Annotated[
        int, msgspec.Meta(ge=1, le=60, description="signs of life missed until it counts as lost")
    ] = 5
    last_call_timeout_seconds: Annotated[
        int, msgspec.Meta(ge=1, le=600, description="seconds that a rendezvous stays open for late ones")
    ] = 5


class TrainingPolicySpec(Resource, frozen=True, kw_only=True):
    """Selection and settings. The policy with the most selector labels that match wins; then the lowest name."""

    selector: Annotated[dict[str, str], msgspec.Meta(description="labels a pod must carry; empty: all")] = {}
    namespaces: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=63)]],
        msgspec.Meta(max_length=256, description="namespaces it holds in; empty: every enabled one"),
    ] = []
    inject: Annotated[bool, msgspec.Meta(description="false leaves matching pods untouched")] = True
    spares: Annotated[int, msgspec.Meta(ge=0, le=64, description="spare nodes named for each gang")] = 1
    keep_spares: Annotated[
        bool,
        msgspec.Meta(description="true: no other gang is planned on its spares; pods of lower priority may run there"),
    ] = False
    checkpoint: Checkpoint = Checkpoint()
    elastic: Elastic = Elastic()


class TrainingPolicyStatus(Resource, frozen=True, kw_only=True):
    """Whether the policy was understood."""

    conditions: list[Condition] = []


class TrainingPolicy(Root, frozen=True, kw_only=True):
    """Settings for the training pods that it selects."""

    metadata: ObjectMeta
    spec: TrainingPolicySpec = TrainingPolicySpec()
    status: TrainingPolicyStatus = msgspec.field(default_factory=TrainingPolicyStatus)
    api_version: str = API_VERSION
    kind: str = "TrainingPolicy"
