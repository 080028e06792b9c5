"""The request and its answer: what each kind of rank says, once, and when. Steps are taken by hand."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inpod.runtime.checkpoint import BadRequest, Mailbox, parse
from inpod.runtime.registry import _offered, register_checkpoint
from inpod.runtime.session import Session
from outrider.api.beacon import Beacon, decode
from outrider.api.checkpoint import CheckpointDone, CheckpointRequest


class Optimizer:
    """As far as the session sees one."""

    def __init__(self, count: int | None = None) -> None:
        self.state = {} if count is None else {"weight": {"step": count}}


class Rank:
    """A process of rank 3, with its clock in the test's hands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unix = 1000.0
        self.session = Session(str(folder), wall=lambda: self.unix, monotonic=lambda: self.unix)
        self.optimizer = Optimizer()

    def step(self, count: int = 1, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.unix += seconds
            self.session.on_step(self.optimizer)

    def save(self, name: str, then: Callable[[Path], Any] | None = None) -> None:
        path = self.folder / name
        save = self.session.before_save(({}, str(path)), {})
        path.write_text(f"state {self.unix}")
        self.session.after_save(save)
        if then is not None:
            then(path)

    def ask(self, identifier: str = "r1", deadline: float = 1e9) -> None:
        request = CheckpointRequest(id=identifier, reason="xid/79", deadline_unix=deadline)
        temporary = self.folder / "new.request"
        temporary.write_bytes(msgspec.json.encode(request))
        os.replace(temporary, self.folder / "ckpt.request")

    def answer(self) -> CheckpointDone | None:
        path = self.folder / "ckpt.done.3"
        return msgspec.json.decode(path.read_bytes(), type=CheckpointDone) if path.exists() else None

    def beacon(self) -> Beacon:
        return decode((self.folder / "rank.3").read_bytes())


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    yield Rank(tmp_path)
    _offered.clear()


def test_beacon_counts_steps_and_their_time(rank: Rank) -> None:
    rank.step(3, seconds=0.5)
    said = rank.beacon()
    assert (said.rank, said.step, said.last_step_unix, said.step_seconds) == (3, 3, 1001.5, 0.5)
    assert (said.checkpoint_step, said.pid) == (-1, os.getpid())


def test_rank_that_never_saved_answers_no_writer_at_its_next_step(rank: Rank) -> None:
    rank.step(2)
    rank.ask()
    rank.step()
    assert rank.answer() == CheckpointDone(id="r1", rank=3, step=3, state="no-writer")


def test_rank_that_saves_waits_for_the_scripts_own_save_and_its_rename(rank: Rank) -> None:
    rank.step()
    rank.save("old.tmp")
    rank.step()
    rank.ask()
    rank.step(3)
    assert rank.answer() is None
    final = rank.folder / "latest.pt"
    rank.save("latest.tmp", lambda path: path.rename(final))
    assert rank.answer() is None, "the script may not have renamed yet"
    rank.step()
    assert rank.answer() == CheckpointDone(id="r1", rank=3, step=6, state="saved", checkpoint_step=5, path=str(final))
    assert rank.beacon().checkpoint_step == 5


def test_deadline_ends_the_wait_with_the_last_known_checkpoint(rank: Rank) -> None:
    rank.step(4)
    rank.save("a.pt")
    rank.step()
    rank.ask(deadline=rank.unix + 2.5)
    rank.step(2)
    assert rank.answer() is None
    rank.step()
    done = rank.answer()
    assert done is not None
    assert (done.state, done.checkpoint_step, done.step) == ("expired", 4, 8)


def test_request_is_answered_once_also_by_the_next_process(rank: Rank) -> None:
    rank.ask()
    rank.step()
    (rank.folder / "ckpt.done.3").write_bytes(
        (rank.folder / "ckpt.done.3").read_bytes().replace(b'"step": 1', b'"step": 77')
    )
    rank.step(3)
    again = Rank(rank.folder)
    again.step()
    kept = rank.answer()
    assert kept is not None
    assert kept.step == 77
    again.ask("r2")
    again.step()
    newer = again.answer()
    assert newer is not None
    assert newer.id == "r2"


def test_registered_function_is_called_at_the_step_boundary(rank: Rank) -> None:
    calls: list[int] = []

    def save() -> str:
        calls.append(rank.beacon().step)
        return "/checkpoints/now"

    register_checkpoint(save)
    rank.step(2)
    rank.ask()
    rank.step(3)
    assert calls == [3]
    assert rank.answer() == CheckpointDone(
        id="r1", rank=3, step=3, state="saved", checkpoint_step=3, path="/checkpoints/now"
    )


def test_registered_function_that_fails_is_noted_and_tried_once(rank: Rank) -> None:
    calls: list[None] = []

    def save() -> None:
        calls.append(None)
        raise OSError("disk full")

    register_checkpoint(save)
    rank.ask()
    rank.step(3)
    assert len(calls) == 1
    done = rank.answer()
    assert done is not None
    assert done.state == "no-writer"
    assert "disk full" in (rank.folder / "inpod.error").read_text()
    assert rank.beacon().step == 3, "training is still watched"


def test_request_file_is_looked_at_no_more_than_every_50_ms(rank: Rank) -> None:
    rank.step()
    rank.ask()
    rank.step(4, seconds=0.01)
    assert rank.answer() is None
    rank.step(2, seconds=0.01)
    assert rank.answer() is not None


@pytest.mark.parametrize(
    ("raw", "field"),
    [(b"", "JSON"), (b"[" * 100_000, "JSON"), (b"[]", "object"), (b'{"id":""}', "id"), (b"\xff", "JSON"),
     (b'{"id":"a","deadline_unix":"soon"}', "deadline_unix"), (b'{"id":"a","deadline_unix":true}', "deadline_unix")],
)  # fmt: skip
def test_request_that_is_none_is_noted_once_and_ignored(rank: Rank, raw: bytes, field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        parse(raw)
    (rank.folder / "ckpt.request").write_bytes(raw)
    rank.step(4)
    assert rank.answer() is None
    assert len((rank.folder / "inpod.error").read_text().splitlines()) == 1
    rank.ask()
    rank.step()
    assert rank.answer() is not None


def test_withdrawn_request_is_not_answered(rank: Rank) -> None:
    rank.step()
    rank.save("a.pt")
    rank.ask()
    rank.step()
    (rank.folder / "ckpt.request").unlink()
    mailbox = Mailbox(str(rank.folder), 3)
    mailbox.look()
    assert mailbox.open is None


def test_only_the_first_optimizer_is_counted_until_it_is_gone(rank: Rank) -> None:
    second = Optimizer()
    rank.step()
    rank.session.on_step(second)
    rank.step()
    assert rank.beacon().step == 2
    rank.optimizer = second
    rank.step()
    assert rank.beacon().step == 3


def test_count_in_the_optimizers_state_goes_on_after_a_restart(rank: Rank) -> None:
    rank.optimizer = Optimizer(count=41)
    rank.step()
    rank.step()
    assert rank.beacon().step == 42


def test_restarted_process_of_the_same_pod_knows_that_it_saves(rank: Rank) -> None:
    rank.step(4)
    rank.save("a.pt")
    rank.step()
    again = Rank(rank.folder)
    again.optimizer = Optimizer(count=5)
    again.step()
    assert again.beacon().checkpoint_step == 4
    again.ask()
    again.step()
    assert again.answer() is None, "it waits for its own next save"


def test_files_of_ranks_that_left_the_pod_are_removed_and_those_of_siblings_kept(rank: Rank) -> None:
    dead = b"OUTRIDER" + b"\1\0\0\0" + bytes(36) + (2**22 + 1).to_bytes(4, "little") + bytes(12)
    for name in ("rank.2", "rank.7"):
        (rank.folder / name).write_bytes(dead)
    (rank.folder / "ckpt.done.7").write_text("{}")
    alive = dead[:48] + os.getpid().to_bytes(4, "little") + bytes(12)
    (rank.folder / "rank.9").write_bytes(alive)
    rank.step()
    assert sorted(path.name for path in rank.folder.iterdir()) == ["rank.2", "rank.3", "rank.9"]


def test_buffer_and_unchanged_file_are_no_checkpoints(rank: Rank) -> None:
    rank.step()
    rank.session.after_save(rank.session.before_save(({}, object()), {}))
    untouched = rank.folder / "x.pt"
    untouched.write_text("")
    rank.session.after_save(rank.session.before_save(({}, untouched), {}))
    rank.step()
    assert rank.beacon().checkpoint_step == -1


def test_answer_is_json_that_a_person_can_read(rank: Rank) -> None:
    rank.ask()
    rank.step()
    assert json.loads((rank.folder / "ckpt.done.3").read_text())["state"] == "no-writer"
