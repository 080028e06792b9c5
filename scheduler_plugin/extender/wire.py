"""The extender's wire format: Go structs without JSON tags (extender/v1), so PascalCase keys.

Answers go out in PascalCase. Requests are read in any case, as Go itself reads them: the exact spelling first, since
that is what kube-scheduler sends, and a folded second reading where something is missing. Full Node objects stay raw
bytes and go back as they came.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from outrider.api.core import Pod
from outrider.api.meta import ObjectMeta

T = TypeVar("T", bound=msgspec.Struct)


class BadRequest(ValueError):
    """A body that is no request of the extender; the message names the field."""


class Pascal(msgspec.Struct, frozen=True, rename="pascal"):
    """Base of the wire structs."""


class NodeList(msgspec.Struct, frozen=True):
    """A v1 NodeList whose items are kept as they came."""

    items: list[msgspec.Raw] | None = None


class Args(Pascal, frozen=True):
    """ExtenderArgs: the request of filter and prioritize."""

    pod: Pod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(Pascal, frozen=True):
    """ExtenderFilterResult."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class HostPriority(Pascal, frozen=True):
    """One entry of HostPriorityList."""

    host: str
    score: int


class MetaPod(Pascal, frozen=True):
    """A victim by UID."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(Pascal, frozen=True):
    """Victims of one node by UID."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class Victims(Pascal, frozen=True):
    """Victims of one node as whole pods."""

    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")

    def meta(self) -> MetaVictims:
        """Return the same victims by UID, the only form of an answer."""
        return MetaVictims([MetaPod(pod.metadata.uid) for pod in self.pods or []], self.num_pdb_violations)


class PreemptionArgs(Pascal, frozen=True):
    """ExtenderPreemptionArgs: one of the two maps is set."""

    pod: Pod | None = None
    node_name_to_victims: dict[str, Victims | None] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims | None] | None = None

    def candidates(self) -> dict[str, MetaVictims]:
        """Return the victims by node, by UID, whichever form was sent; a null entry has none."""
        if self.node_name_to_meta_victims:
            return {name: victims or MetaVictims() for name, victims in self.node_name_to_meta_victims.items()}
        return {name: (victims or Victims()).meta() for name, victims in (self.node_name_to_victims or {}).items()}


class PreemptionResult(Pascal, frozen=True):
    """ExtenderPreemptionResult: always by UID, never a null entry (kube-scheduler dereferences it)."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_ARGS: Final = msgspec.json.Decoder(Args)
_PREEMPTION: Final = msgspec.json.Decoder(PreemptionArgs)
_NAMED: Final = msgspec.json.Decoder(_Named)
_ENCODER: Final = msgspec.json.Encoder()


def decode_args(body: bytes) -> Args:
    """Read the request of filter or prioritize. Raises BadRequest."""
    args = _decode(_ARGS, body)
    complete = args.pod is not None and (args.node_names is not None or args.nodes is not None)
    return args if complete else _decode(_ARGS, _refolded(body, Args))


def decode_preemption(body: bytes) -> PreemptionArgs:
    """Read the request of preempt. Raises BadRequest."""
    args = _decode(_PREEMPTION, body)
    complete = args.pod is not None and args.candidates()
    return args if complete else _decode(_PREEMPTION, _refolded(body, PreemptionArgs))


def node_names(args: Args) -> list[str]:
    """Return the candidates' names, from whichever form was sent. Raises BadRequest for a node that is no object."""
    if args.node_names is not None:
        return args.node_names
    return [_decode(_NAMED, item).metadata.name for item in (args.nodes and args.nodes.items) or []]


def encode(answer: Any) -> bytes:
    """Return the body of an answer."""
    return _ENCODER.encode(answer)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error


def _refolded(body: bytes, struct: type[Pascal]) -> bytes:
    """Spell the keys as ours, whatever their case, at every depth that is not a Kubernetes object."""
    try:
        return _ENCODER.encode(_folded(msgspec.json.decode(body), struct))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error


def _folded(value: object, struct: type[Pascal]) -> object:
    if not isinstance(value, dict):
        return value
    spelled = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(struct)}
    folded = {spelled.get(str(key).lower(), key): content for key, content in value.items()}
    for key, inner in (("NodeNameToVictims", Victims), ("NodeNameToMetaVictims", MetaVictims)):
        if isinstance(folded.get(key), dict):
            folded[key] = {node: _folded(victims, inner) for node, victims in folded[key].items()}
    if struct is MetaVictims and isinstance(folded.get("Pods"), list):
        folded["Pods"] = [_folded(pod, MetaPod) for pod in folded["Pods"]]
    return folded
