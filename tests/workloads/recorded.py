"""Pods and owners as real controllers made them: pods/KIND/CASE.json, written by testbed.operators."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.api.core import Owner, Pod
from outrider.kube.kinds import JOBS, OPTIONAL_OWNERS, STATEFULSETS, Kind
from outrider.workloads import GangRef, gang_of, key_of_owner, owner_key, owns

FILES: Final = sorted((Path(__file__).parent / "pods").glob("*/*.json"))
KINDS: Final[list[Kind[Any]]] = [JOBS, STATEFULSETS, *(kind for versions in OPTIONAL_OWNERS for kind in versions)]
_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in KINDS}


class Recorded(msgspec.Struct):
    """One job: its owners from the top, all its pods, and the names of those that came while none was scheduled."""

    owners: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    first: list[str]

    def typed(self) -> list[Pod]:
        """Return the pods."""
        return [msgspec.convert(pod, Pod) for pod in self.pods]

    def known(self) -> list[Owner]:
        """Return those owners whose kinds the scheduler plugin follows."""
        kinds = [(_BY_NAME.get((one["apiVersion"], one["kind"])), one) for one in self.owners]
        return [msgspec.convert(one, kind.struct) for kind, one in kinds if kind is not None]

    def owner_of(self, gang: GangRef, namespace: str) -> Owner | None:
        """Return a gang's owner as World finds it."""
        owners = {key_of_owner(owner): owner for owner in self.known()}
        key = owner_key(gang, namespace)
        owner = owners.get(key) if key else None
        return owner if owner is not None and owns(owner, gang) else None

    def gangs(self) -> list[tuple[GangRef, Owner | None, list[Pod]]]:
        """Return every gang among the pods."""
        found: dict[GangRef, list[Pod]] = {}
        for pod in self.typed():
            gang = gang_of(pod)
            assert gang is not None
            found.setdefault(gang, []).append(pod)
        return [(gang, self.owner_of(gang, pods[0].metadata.namespace), pods) for gang, pods in found.items()]


def read(name: str) -> Recorded:
    """Return a recorded case, such as jobset/exclusive."""
    path = Path(__file__).parent / "pods" / f"{name}.json"
    return msgspec.convert(json.loads(path.read_text()), Recorded)


def name_of(path: Path) -> str:
    """Return what ``read`` calls a file."""
    return f"{path.parent.name}/{path.stem}"
