"""What users are told of a change, and who: the node, and the pods that the sick hardware is under. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from node_agent.memory import Announced, Memory
from node_agent.ranks import trace_of
from outrider.api.core import Pod
from outrider.api.gpunode import GPU
from outrider.health.catalogue import Catalogue
from outrider.health.judge import Judgement, Opinion
from outrider.workloads.quantities import BadQuantity
from outrider.workloads.resources import gpus_of


class Message(msgspec.Struct, frozen=True):
    """One event, alike on the node and on the pods that it is about."""

    text: str
    sick: bool
    gpu: str = ""
    """UUID of the GPU that it is about, empty for the whole node."""


def state_of(judgement: Judgement) -> Announced:
    """Return what users know once they have been told all of the judgement."""
    hard = {uuid: opinion.reason for uuid, opinion in sorted(judgement.gpus.items()) if opinion.verdict.hard}
    return Announced(judgement.node.verdict, judgement.node.reason, hard)


def messages(memory: Memory, judgement: Judgement, catalogue: Catalogue, node: str) -> list[Message]:
    """Return what users have not been told yet: each GPU's fall and recovery once, and the node's own."""
    before, after = memory.announced, state_of(judgement)
    fallen = [uuid for uuid, reason in after.gpus.items() if before.gpus.get(uuid) != reason]
    risen = [uuid for uuid in before.gpus if uuid not in after.gpus]
    names = {record.uuid: f"GPU {record.index} ({record.uuid})" for record in memory.inventory}
    told = [
        Message(f"node {node}: {_words(names.get(uuid, uuid), judgement.gpus[uuid], catalogue)}", True, uuid)
        for uuid in fallen
    ]
    told += [
        Message(f"node {node}: {names.get(uuid, uuid)}: nothing grave is known any more", False, uuid) for uuid in risen
    ]
    own = _own_reason(after)
    if own and own != _own_reason(before):
        told.append(Message(f"node {node}: {judgement.message}", True))
    elif _own_reason(before) and not after.verdict.hard:
        told.append(Message(f"node {node}: {judgement.message}", False))
    return told


def _own_reason(announced: Announced) -> str:
    """The reason of a hard verdict that comes from no GPU, empty where there is none."""
    own = announced.verdict.hard and announced.reason not in announced.gpus.values()
    return announced.reason if own else ""


def _words(name: str, opinion: Opinion, catalogue: Catalogue) -> str:
    row = catalogue.of(opinion.reason)
    return f"{name}: {row.meaning} ({opinion.reason}). Next: {row.advice}."


def affected(pods: Iterable[Pod], gpu: str, holders: Mapping[str, str] | None) -> list[Pod]:
    """Return the pods that a message concerns: the GPU's holder where the kubelet told, else all that have GPUs."""
    with_gpus = [pod for pod in pods if not pod.finished and uses_gpus(pod)]
    if not gpu or holders is None:
        return with_gpus
    return [pod for pod in with_gpus if pod.metadata.uid == holders.get(gpu)]


def uses_gpus(pod: Pod) -> bool:
    """True for pods of training jobs, and others that ask for GPUs."""
    try:
        asks = gpus_of(pod) > 0
    except BadQuantity:
        asks = True
    return asks or bool(trace_of(pod))


def isolated(gpus: Iterable[GPU], uuids: Iterable[str]) -> list[GPU]:
    """Return the GPUs of a status, marked where a DeviceTaintRule keeps new pods off them."""
    held = set(uuids)
    return [msgspec.structs.replace(gpu, isolated=gpu.uuid in held) for gpu in gpus]
