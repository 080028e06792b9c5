"""Errors of Kubernetes access: one class for each answer that Outrider's code reacts to."""


class KubeError(Exception):
    """Any failure of a Kubernetes request; ``status`` is the HTTP code, 0 where no answer came."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(KubeError):
    """No answer: connection refused or broken, or the time limit ran out."""


class NotFound(KubeError):
    """404: the object, or its kind, does not exist."""


class AlreadyExists(KubeError):
    """409 with reason AlreadyExists: an object of that name is there."""


class Conflict(KubeError):
    """409 otherwise: the object changed since it was read; or a precondition failed."""


class Gone(KubeError):
    """410: the resource version is too old, list again."""


class Invalid(KubeError):
    """422 or 400: the API server refused the content."""


class Forbidden(KubeError):
    """401 or 403: credentials or RBAC do not allow it."""


class TooManyRequests(KubeError):
    """429: throttled, or an eviction that a PodDisruptionBudget does not allow now."""

    def __init__(self, message: str, status: int = 429, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message, status)
        self.retry_after_seconds = retry_after_seconds


class NoCredentials(KubeError):
    """Neither a service account nor a usable kubeconfig was found."""
