"""Why a gang waits, as one sentence for people. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from outrider.api.meta import MESSAGE_MAX
from outrider.api.why import NodeState, StateCount, WaitReason, Why
from outrider.words import listed, plural

_WORDS: Final = {
    NodeState.FREE: "healthy and free",
    NodeState.IN_USE: "in use",
    NodeState.RESERVED: "reserved for other gangs",
    NodeState.UNHEALTHY: "unhealthy",
    NodeState.UNKNOWN_HEALTH: "of unknown health",
    NodeState.QUARANTINED: "quarantined",
    NodeState.SUSPECT: "in a suspect domain",
    NodeState.REJECTING: "rejecting or killing pods as they start",
    NodeState.CORDONED: "cordoned",
    NodeState.TAINTED: "tainted",
    NodeState.NOT_SELECTED: "outside the pods' node selector or affinity",
    NodeState.TRIED: "tried before, without the pod starting there",
    NodeState.SMALLER: "with fewer GPUs",
}
_ENDS_SHOWN: Final = 3


def sentence(why: Why) -> str:
    """Return the sentence, such as "needs 3 nodes with 8 free GPUs; 2 healthy and free, 1 unhealthy (xid/79)"."""
    said = () if _vain(why) else _SAID.get(why.reason, _no_room)(why)
    return "; ".join((*said, *why.notes))[:MESSAGE_MAX]


def _vain(why: Why) -> bool:
    """Return whether the wish itself can't be met, so that no node was looked at: the notes say it all."""
    looked = why.states or why.best or why.gpus_per_pod
    return why.reason is WaitReason.NEVER_FITS and bool(why.notes) and not looked


def _missing(why: Why) -> Iterator[str]:
    verb = "exists" if why.exist == 1 else "exist"
    yield f"{why.exist} of {plural(why.pods, 'pod')} {verb}"
    yield "the gang is placed once all do"


def _behind(why: Why) -> Iterator[str]:
    yield f"{_need(why)}; it waits behind {listed(why.ends, _ENDS_SHOWN)}" if why.ends else f"{_need(why)}; it waits"


def _no_room(why: Why) -> Iterator[str]:
    yield _need(why)
    if why.best is None:
        yield _counts(why.states) or "the cluster has no node with GPUs"
    else:
        room = "" if why.whole_nodes else f"room for {why.best.room} of {why.pods}: "
        yield f"best is {why.best.domain}: {room}{_counts(why.best.states)}"
    if why.reason is WaitReason.NEVER_FITS and (why.best or why.states):
        where = f"no {why.level} is" if why.level else "the cluster is not"
        yield f"{where} large enough, even empty and healthy"
    elif why.ends:
        yield f"fits first when {_ends(why)}"


def _need(why: Why) -> str:
    gpus = plural(why.gpus_per_pod, "free GPU")
    together = f" under one {why.level}" if why.level else ""
    if why.segment_pods:
        together += f", each {plural(why.segment_pods, 'pod')} under one {why.segment_level}"
    if not why.gpus_per_pod:
        return f"needs room for {plural(why.pods, 'pod')}{together}"
    if why.whole_nodes:
        return f"needs {plural(why.pods, 'node')} with {gpus}{together}"
    each = f"{gpus} each" if why.pods > 1 else gpus
    return f"needs room for {plural(why.pods, 'pod')} with {each}{together}"


def _ends(why: Why) -> str:
    names = listed(why.ends, _ENDS_SHOWN, "and" if why.ends_together else "or")
    return f"{names} {'end' if why.ends_together and len(why.ends) > 1 else 'ends'}"


def _counts(states: Sequence[StateCount]) -> str:
    return ", ".join(f"{one.nodes} {_words(one)}" for one in states)


def _words(one: StateCount) -> str:
    causes = ", ".join(one.causes)
    if one.state is NodeState.SHORT:
        return f"short of {causes}"
    if one.state is NodeState.OTHER:
        return causes or "refused"
    return f"{_WORDS[one.state]} ({causes})" if causes else _WORDS[one.state]


_SAID: Final = {WaitReason.MEMBERS_MISSING: _missing, WaitReason.BEHIND: _behind}
