"""The rules of a lease: pure functions over what the API server shows and what we saw when.

Only our own monotonic clock is compared with itself; times written in the lease are for people (client-go's rule:
clocks of other machines may be wrong, or jump).
"""

import math
from dataclasses import dataclass
from typing import Final

from outrider.api.coordination import Lease, LeaseSpec
from outrider.api.meta import ObjectMeta
from outrider.api.times import rfc3339

_RELEASED_SECONDS: Final = 1  # a released lease must still have a positive duration to be valid


@dataclass(frozen=True)
class Observation:
    """A lease as last read, and the monotonic time at which this version of it was first seen."""

    lease: Lease
    since: float


def observe(previous: Observation | None, lease: Lease, now: float) -> Observation:
    """Return what is known after reading ``lease``: an unchanged version keeps its age."""
    version = lease.metadata.resource_version
    if previous is not None and previous.lease.metadata.resource_version == version:
        return previous
    return Observation(lease, now)


def may_take(seen: Observation, identity: str, own_seconds: float, now: float) -> bool:
    """Return True where the lease is free, ours (we were restarted), or was not renewed for its whole length.

    A length below our own is not believed: a hand-edited 0 must not make two leaders.
    """
    holder = seen.lease.spec.holder_identity
    length = max(float(seen.lease.spec.lease_duration_seconds), own_seconds)
    return holder in ("", identity) or now - seen.since > length


def claim(current: Lease, identity: str, seconds: float, unix: float) -> Lease:
    """Return the lease as we write it to take or renew it; conditional on the version of ``current``."""
    spec = current.spec
    renewal = spec.holder_identity == identity
    claimed = LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=math.ceil(seconds),
        acquire_time=spec.acquire_time if renewal else rfc3339(unix),
        renew_time=rfc3339(unix),
        lease_transitions=spec.lease_transitions + (0 if renewal else 1),
    )
    return Lease(metadata=_identity_of(current), spec=claimed)


def release(current: Lease, unix: float) -> Lease:
    """Return the lease as we write it to give it up, so that the next leader need not wait."""
    spec = LeaseSpec(
        lease_duration_seconds=_RELEASED_SECONDS,
        acquire_time=rfc3339(unix),
        renew_time=rfc3339(unix),
        lease_transitions=current.spec.lease_transitions,
    )
    return Lease(metadata=_identity_of(current), spec=spec)


def _identity_of(lease: Lease) -> ObjectMeta:
    metadata = lease.metadata
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owner_references=metadata.owner_references,
    )
