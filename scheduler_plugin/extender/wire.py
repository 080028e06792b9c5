"""The extender's wire format: Go structs without JSON tags (extender/v1), so PascalCase keys.

Answers go out in PascalCase. Requests are read as Go itself reads them, keys in any case and null for anything: the
exact spelling first, since that is what kube-scheduler sends, and a second, folded reading where something is missing
or odd. Full Node objects stay raw bytes and go back as they came.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from outrider.api.core import Pod
from outrider.api.meta import ObjectMeta

T = TypeVar("T", bound=msgspec.Struct)
P = TypeVar("P", bound="Pascal")
_LARGEST_FOLDED_BYTES: Final = 8 * 1024 * 1024  # of one field: unlike structs, parsed JSON takes many times its text


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
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_FIELDS: Final = frozenset(("Nodes", "NodeNames"))
_VICTIMS: Final[Mapping[str, type[Pascal]]] = {
    "NodeNameToVictims": Victims,
    "NodeNameToMetaVictims": MetaVictims,
}
_ENCODER: Final = msgspec.json.Encoder()


def decode_args(body: bytes) -> Args:
    """Read the request of filter or prioritize. Raises BadRequest."""
    return _read(
        _ARGS, Args, body, lambda args: args.pod is not None and (args.node_names is not None or args.nodes is not None)
    )


def decode_preemption(body: bytes) -> PreemptionArgs:
    """Read the request of preempt. Raises BadRequest."""
    return _read(_PREEMPTION, PreemptionArgs, body, lambda args: args.pod is not None and bool(args.candidates()))


def node_names(args: Args) -> list[str]:
    """Return the candidates' names, from whichever form was sent. Raises BadRequest for a node that is no object."""
    if args.node_names is not None:
        return args.node_names
    return [_decode(_NAMED, item).metadata.name for item in (args.nodes and args.nodes.items) or []]


def encode(answer: Any) -> bytes:
    """Return the body of an answer."""
    return _ENCODER.encode(answer)


def _read(decoder: msgspec.json.Decoder[P], struct: type[P], body: bytes, complete: Callable[[P], bool]) -> P:
    problem: BadRequest | None = None
    try:
        args = _decode(decoder, body)
        if complete(args):
            return args
    except BadRequest as error:
        problem = error
    try:
        return _decode(decoder, _refolded(body, struct))
    except BadRequest as error:
        raise problem or error from error


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error


def _refolded(body: bytes, struct: type[Pascal]) -> bytes:
    """Spell the keys as ours, whatever their case, and leave out nulls, but keep Nodes and names as they are."""
    try:
        fields = _spelled(_FIELDS.decode(body), struct)
        return _ENCODER.encode(
            {key: raw if key in _RAW_FIELDS else _refolded_field(key, raw) for key, raw in fields.items()}
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error


def _refolded_field(key: str, raw: msgspec.Raw) -> object:
    if len(memoryview(raw)) > _LARGEST_FOLDED_BYTES:
        raise BadRequest(f"{key} is too large to be read with keys in another case, or with nulls")
    value, struct = _bare(msgspec.json.decode(raw)), _VICTIMS.get(key)
    if struct is None or not isinstance(value, dict):
        return value
    return {node: _folded(victims, struct) for node, victims in value.items()}


def _folded(value: object, struct: type[Pascal]) -> object:
    if not isinstance(value, dict):
        return value
    folded = _spelled(value, struct)
    if struct is MetaVictims and isinstance(folded.get("Pods"), list):
        folded["Pods"] = [_folded(pod, MetaPod) for pod in folded["Pods"]]
    return folded


def _spelled(value: dict[str, Any], struct: type[Pascal]) -> dict[str, Any]:
    spelled = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(struct)}
    return {spelled.get(key.lower(), key): content for key, content in value.items()}


def _bare(value: object) -> object:
    """Leave out nulls, which are to Go what is not there."""
    if isinstance(value, dict):
        return {key: _bare(content) for key, content in value.items() if content is not None}
    return [_bare(one) for one in value] if isinstance(value, list) else value
