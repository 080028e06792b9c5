import asyncio
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_agent.config import Config
from node_agent.rank_files import read, write_request
from node_agent.ranks import RankWatcher
from outrider.api import beacon
from outrider.api.beacon import Beacon
from outrider.api.checkpoint import CheckpointRequest
from outrider.api.core import Pod, PodSpec, Volume
from outrider.api.meta import ObjectMeta
from outrider.api.names import CHECKPOINT_REQUEST_ANNOTATION

NOW = 1_800_000_000.0
SPEC = PodSpec(volumes=[Volume(name="outrider")])
REQUEST = CheckpointRequest(id="r1", reason="xid/79", deadline_unix=NOW + 60)


def put_beacon(folder, rank=0, step=10, checkpoint_step=-1, name=None):
    content = beacon.encode(Beacon(rank, step, NOW, 0.5, checkpoint_step, 42))
    (folder / (name or f"rank.{rank}")).write_bytes(content)


def put_answer(folder, rank=0, **values):
    answer = {"id": "r1", "rank": rank, "step": 12, "state": "saved", "checkpoint_step": 12, "path": "/p"} | values
    (folder / f"ckpt.done.{rank}").write_text(json.dumps(answer))


def test_beacons_and_answers_are_read_by_rank(tmp_path):
    put_beacon(tmp_path, rank=3, step=7)
    put_answer(tmp_path, rank=3)
    files = read(tmp_path)
    assert files.beacons[3].step == 7
    assert files.answers[3].state == "saved"


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert read(tmp_path / "none") == read(tmp_path)


def test_links_pipes_folders_and_large_files_are_not_read(tmp_path):
    inside, outside = tmp_path / "pod", tmp_path / "host"
    inside.mkdir()
    outside.mkdir()
    put_beacon(outside, rank=0)
    (inside / "rank.0").symlink_to(outside / "rank.0")
    os.mkfifo(inside / "rank.1")
    (inside / "rank.2").mkdir()
    (inside / "rank.3").write_bytes(b"\0" * 1_000_000)
    (inside / "ckpt.done.0").write_bytes(b" " * 100_000 + b"{}")
    files = read(inside)
    assert (files.beacons, files.answers) == ({}, {})
    (tmp_path / "link").symlink_to(outside)
    assert read(tmp_path / "link").beacons == {}


def test_a_file_that_speaks_for_another_rank_is_ignored(tmp_path):
    put_beacon(tmp_path, rank=1, name="rank.2")
    put_answer(tmp_path, rank=1)
    (tmp_path / "ckpt.done.1").rename(tmp_path / "ckpt.done.2")
    files = read(tmp_path)
    assert (files.beacons, files.answers) == ({}, {})


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_breaks_the_reader(tmp_path, content):
    for name in ("rank.0", "ckpt.done.0", "rank.x", "rank.00", "ckpt.done."):
        (tmp_path / name).write_bytes(content)
    read(tmp_path)


@pytest.mark.parametrize(
    "values", [{"step": 2**64}, {"step": 10**40}, {"checkpoint_step": 2**63}, {"id": "x" * 129}, {"id": ""}]
)
def test_an_answer_that_no_status_can_hold_is_refused(tmp_path, values):
    put_answer(tmp_path, **values)
    assert read(tmp_path).answers == {}


def test_an_answer_nested_without_end_breaks_nothing(tmp_path):
    (tmp_path / "ckpt.done.0").write_bytes(b'{"x":' + b"[" * 15_000)
    assert read(tmp_path).answers == {}


def test_one_pod_that_claims_every_rank_does_not_crowd_out_others(tmp_path):
    for rank in range(300):
        put_beacon(tmp_path, rank=rank)
        put_answer(tmp_path, rank=rank)
    files = read(tmp_path)
    assert len(files.beacons) == len(files.answers) == 64


@given(st.binary(min_size=52, max_size=52))
def test_garbage_behind_a_right_magic_is_refused_or_in_range(body):
    try:
        said = beacon.decode(beacon.MAGIC + (1).to_bytes(4, "little") + body)
    except ValueError:
        return
    assert said.step <= beacon.MAX_STEP
    assert said.step_seconds >= 0


def test_a_request_is_written_once_readable_for_any_user(tmp_path):
    assert write_request(tmp_path, REQUEST)
    assert not write_request(tmp_path, REQUEST)
    file = tmp_path / "ckpt.request"
    assert json.loads(file.read_text()) == {"id": "r1", "reason": "xid/79", "deadline_unix": NOW + 60}
    assert file.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["ckpt.request"]


def test_a_request_never_goes_through_a_link_that_the_pod_laid(tmp_path):
    pod, host = tmp_path / "pod", tmp_path / "secret"
    pod.mkdir()
    host.write_text("untouched")
    for name in ("ckpt.request", ".ckpt.request.partial"):
        (pod / name).symlink_to(host)
    assert write_request(pod, REQUEST)
    assert host.read_text() == "untouched"
    assert not (pod / "ckpt.request").is_symlink()


def test_something_in_the_way_is_an_error_and_not_a_crash(tmp_path):
    (tmp_path / "ckpt.request" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match=r"ckpt\.request"):
        write_request(tmp_path, REQUEST)


class Watch:
    """A rank watcher over one pod, with what it publishes."""

    def __init__(self, folder):
        self.published = []
        self.pod = Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u1"), spec=SPEC)
        self.folder = folder / "u1" / "volumes" / "kubernetes.io~empty-dir" / "outrider"
        self.folder.mkdir(parents=True)
        config = Config(kubelet_pods_dir=str(folder))
        self.watcher = RankWatcher(config, lambda: [self.pod], lambda *said: self.published.append(said))

    def ask(self, text):
        annotations = {CHECKPOINT_REQUEST_ANNOTATION: text}
        self.pod = Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u1", annotations=annotations), spec=SPEC)

    def look(self, seconds):
        self.watcher.look(NOW + seconds, seconds)
        said = list(self.published)
        self.published.clear()
        return said


def test_a_new_rank_and_an_answer_are_published_at_once_and_steps_every_ten_seconds(tmp_path):
    watch = Watch(tmp_path)
    assert watch.look(0) == []
    put_beacon(watch.folder, step=10)
    ((states, urgent),) = watch.look(1)
    assert (states[0].step, states[0].pod_name, urgent) == (10, "p", True)
    put_beacon(watch.folder, step=11)
    assert watch.look(2) == []
    ((states, urgent),) = watch.look(11)
    assert (states[0].step, urgent) == (11, False)
    put_answer(watch.folder)
    ((states, urgent),) = watch.look(12)
    assert (states[0].acknowledged, states[0].acknowledged_state, states[0].checkpoint_step) == ("r1", "saved", 12)
    assert urgent


def test_a_rank_that_stands_still_keeps_the_time_it_was_first_seen_so(tmp_path):
    watch = Watch(tmp_path)
    put_beacon(watch.folder)
    ((first, _),) = watch.look(0)
    put_beacon(watch.folder, rank=1)
    ((second, _),) = watch.look(30)
    assert second[0].observed_at == first[0].observed_at
    assert second[1].observed_at != first[0].observed_at


def test_an_annotation_becomes_a_request_file(tmp_path):
    watch = Watch(tmp_path)
    watch.ask(f'{{"id": "r1", "reason": "x", "deadline_unix": {NOW + 60}}}')
    watch.look(0)
    assert json.loads((watch.folder / "ckpt.request").read_text())["id"] == "r1"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "[]", '{"id": 1}', '{"x":' + "[" * 100_000),
        f'{{"id": "r1", "reason": "x", "deadline_unix": {NOW - 1}}}',
    ],
)
def test_an_annotation_that_makes_no_sense_or_is_too_late_writes_nothing(tmp_path, text):
    watch = Watch(tmp_path)
    watch.ask(text)
    watch.look(0)
    assert os.listdir(watch.folder) == []


def test_a_pod_whose_folder_comes_late_gets_its_request_then(tmp_path):
    watch = Watch(tmp_path)
    watch.folder.rmdir()
    watch.ask(f'{{"id": "r1", "reason": "x", "deadline_unix": {NOW + 60}}}')
    watch.look(0)
    watch.folder.mkdir()
    watch.look(1)
    assert os.listdir(watch.folder) == ["ckpt.request"]


def test_pods_without_the_volume_of_the_contract_cost_nothing(tmp_path):
    watch = Watch(tmp_path)
    put_beacon(watch.folder)
    watch.pod = Pod(metadata=watch.pod.metadata, spec=PodSpec(volumes=[Volume(name="other")]))
    assert watch.look(0) == []


@pytest.mark.looptime
async def test_the_watcher_sleeps_until_a_training_pod_comes_and_after_it_is_gone(tmp_path):
    watch = Watch(tmp_path)
    training, watch.pod = watch.pod, Pod(metadata=watch.pod.metadata)
    running = asyncio.create_task(watch.watcher.run())
    await asyncio.sleep(60)
    put_beacon(watch.folder)
    watch.pod = training
    await asyncio.sleep(60)
    assert watch.published == []
    watch.watcher.pods_changed()
    await asyncio.sleep(0.3)
    assert [len(states) for states, _ in watch.published] == [1]
    watch.pod = Pod(metadata=training.metadata)
    await asyncio.sleep(0.3)
    assert [len(states) for states, _ in watch.published] == [1, 0]
    running.cancel()
