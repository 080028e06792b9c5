"""The checkpoint request and its answers: annotation on pods, files in the pod's emptyDir."""

from enum import StrEnum
from typing import Annotated

import msgspec

from outrider.api.beacon import MAX_RANK, MAX_STEP

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class CheckpointRequest(msgspec.Struct, frozen=True):
    """Asks every rank of a job for a checkpoint. Annotation value and content of ckpt.request."""

    id: RequestId
    reason: str
    deadline_unix: Annotated[float, msgspec.Meta(description="seconds since 1970; answers after it are worthless")]


class AnswerState(StrEnum):
    """What a rank did about a request."""

    SAVED = "saved"
    NO_WRITER = "no-writer"  # this rank saves no checkpoints
    EXPIRED = "expired"


class CheckpointDone(msgspec.Struct, frozen=True):
    """One rank's answer, content of ckpt.done.RANK. Pods are untrusted: no value passes that a status can't hold."""

    id: RequestId
    rank: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]
    step: Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
    state: AnswerState
    checkpoint_step: Annotated[int, msgspec.Meta(ge=-1, le=MAX_STEP)] = -1
    path: str = ""
