"""From moments to a story: what happened between two views, and whether it ended well. Pure."""

from collections.abc import Iterator

import msgspec

from testbed.demo.view import EpisodeView, PodView, StepLine, View

_HARD = ("reset", "reboot", "replace")


class Moment(msgspec.Struct, frozen=True):
    """Something that happened, for the person who watches; ``phase`` names it in the summary."""

    phase: str
    text: str


def happened(before: View, after: View) -> Iterator[Moment]:
    """Yield what changed, in the order in which it follows from each other; nothing at the first look."""
    if not before.nodes:
        return
    yield from _health(before, after)
    yield from _episodes(before, after)
    yield from _pods(before, after)
    if after.revision > before.revision:
        plan = ", ".join(f"rank {rank} on {node}" for rank, node in sorted(after.placement.items()))
        yield Moment("planned", f"plan {after.revision}: {plan}")


def _health(before: View, after: View) -> Iterator[Moment]:
    for name, node in after.nodes.items():
        old = before.nodes.get(name)
        if old is None:
            continue
        if node.verdict in _HARD and old.verdict not in _HARD:
            yield Moment("seen", f"{name}: fault seen: {node.reason}: {node.message} (verdict {node.verdict})")
        if node.score != old.score:
            yield Moment("scored", f"{name}: score {old.score} -> {node.score}")
        if node.taint != old.taint:
            what = "taint lifted" if node.taint is None else f"tainted outrider.dev/unhealthy={node.taint}:NoSchedule"
            yield Moment("tainted" if node.taint is not None else "untainted", f"{name}: {what}")


def _episodes(before: View, after: View) -> Iterator[Moment]:
    for name, episode in after.episodes.items():
        old = before.episodes.get(name)
        if old is None:
            yield Moment("opened", f"remediation {name} opened for {episode.node}")
        yield from _steps(episode, old)
        if old is not None and episode.phase != old.phase:
            yield Moment("closed", f"remediation {name} is {episode.phase}")


def _steps(episode: EpisodeView, old: EpisodeView | None) -> Iterator[Moment]:
    for step, (state, proof) in episode.steps.items():
        if old is None or old.steps.get(step, ("", ""))[0] != state:
            yield Moment(f"{step} {state}", f"{step}: {state}{f' ({proof})' if proof else ''}")


def _pods(before: View, after: View) -> Iterator[Moment]:
    asked = [p.name for p in after.pods.values() if p.checkpoint_request and not _old(p, before).checkpoint_request]
    if asked:
        yield Moment("checkpoint asked", f"checkpoint asked of {', '.join(sorted(asked))}")
    for pod in after.pods.values():
        if pod.uid not in before.pods and before.pods:
            yield Moment("new pod", f"worker {pod.index}: new pod {pod.name}")
        yield from _changes(pod, _old(pod, before))
    for uid, gone in before.pods.items():
        if uid not in after.pods:
            yield Moment("gone", f"worker {gone.index}: pod {gone.name} is gone from {gone.node or 'no node'}")


def _changes(pod: PodView, old: PodView) -> Iterator[Moment]:
    if pod.ending and not old.ending:
        yield Moment("evicted", f"worker {pod.index}: pod {pod.name} leaves {pod.node}")
    if pod.node and not old.node:
        yield Moment("bound", f"worker {pod.index}: {pod.name} bound to {pod.node}")
    if pod.ready and not old.ready:
        yield Moment("running", f"worker {pod.index}: {pod.name} runs on {pod.node}")


_NOBODY = PodView("", "", -1, "", "", gated=False, ready=False, restarts=0, ending=False, checkpoint_request="")


def _old(pod: PodView, before: View) -> PodView:
    return before.pods.get(pod.uid, _NOBODY)


class Curve(msgspec.Struct, frozen=True):
    """The loss curve as two legs: before the interruption and after it."""

    before: dict[int, StepLine]
    after: dict[int, StepLine]

    @property
    def resumed_from(self) -> int:
        """Step of the checkpoint that the second leg started from."""
        return min(line.resumed_from for line in self.after.values())

    @property
    def first(self) -> StepLine:
        """First step of the second leg."""
        return min(self.after.values(), key=lambda line: line.unix)

    @property
    def steps_lost(self) -> int:
        """Steps that had been done and were done again."""
        return max(0, max(self.before) - self.resumed_from)


def curve(lines: list[StepLine], fault_unix: float) -> Curve | None:
    """Split all ranks' lines where training began again after the fault; None where it has not, or never ran before."""
    ordered = sorted(lines, key=lambda line: line.unix)
    if not ordered:
        return None
    last = ordered[-1].resumed_from
    starts = [
        x.unix for x in ordered if x.unix > fault_unix and x.step == x.resumed_from + 1 and x.resumed_from == last
    ]
    if not starts:
        return None
    before = {line.step: line for line in ordered if line.unix < starts[0]}
    after = {line.step: line for line in ordered if line.unix >= starts[0]}
    return Curve(before, after) if before else None


def continues(found: Curve) -> str:
    """Return why the loss curve did not go on from the checkpoint; empty where it did.

    A step's batch depends on its number alone, so a repeated step must give nearly the loss that it gave before.
    """
    if found.first.step != found.resumed_from + 1:
        return f"the first step after the checkpoint of step {found.resumed_from} was {found.first.step}"
    repeated = sorted(set(found.before) & set(found.after))
    for step in repeated:
        old, new = found.before[step].loss, found.after[step].loss
        if abs(old - new) > 0.02 * max(abs(old), 0.1):
            return f"step {step} had loss {old} before the move and {new} after it"
    if not repeated and (text := _jump(found)):
        return text
    return ""


def _jump(found: Curve) -> str:
    old = _mean([found.before[step].loss for step in sorted(found.before)[-10:]])
    new = _mean([found.after[step].loss for step in sorted(found.after)[:10]])
    return f"mean loss was {old:.3f} before the move and {new:.3f} after it" if new > 1.5 * old else ""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def untouched(before: View, after: View, victim: PodView) -> str:
    """Return which other worker was touched; empty where all kept their pod, their node and their containers."""
    for uid, pod in before.pods.items():
        if pod.index == victim.index:
            continue
        now = after.pods.get(uid)
        if now is None:
            return f"worker {pod.index} lost its pod {pod.name}"
        if now.restarts != pod.restarts:
            return f"containers of worker {pod.index} ({pod.name}) restarted {now.restarts - pod.restarts} times"
    return ""
