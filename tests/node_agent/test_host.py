import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.config import Config
from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Memory
from node_agent.probes.host import HostProbe, _kernel_clock
from node_agent.probes.report import Report
from node_agent.readings.host_judging import HostWatch, Kept
from node_agent.readings.host_readings import (
    DIMM,
    Clock,
    Disk,
    HostLook,
    MainMemory,
    Mount,
    clock_of,
    judged_disks,
    memory_of,
    mounts_of,
)
from outrider.api.gpunode import SubjectKind, Verdict
from outrider.health.catalogue import load
from tests.node_agent.sysfs_tree import write

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
GIB = 1024**3
PODS = "/var/lib/kubelet/pods"
ROOM = Disk(path="/", blocks=1000, blocks_free=500, inodes=1000, inodes_free=500)
IN_STEP = Clock(synchronised=True, offset=1e-5, error_max=0.01)
WELL = HostLook(boot_id="boot-1", disks=(ROOM,), clock=IN_STEP, memory=MainMemory(stalled=0.0, available=64 * GIB))


def look(**values) -> HostLook:
    return msgspec.structs.replace(WELL, **values)


class Host:
    """Judges looks as the agent does; 30 s lie between two."""

    def __init__(self) -> None:
        self.memory, self.kept, self.seconds = Memory(), Kept(), 0.0
        self.watch = HostWatch(PODS)

    def restart(self, boot: str = "boot-1") -> None:
        self.watch = HostWatch(PODS)
        self.watch.restore(msgspec.json.decode(msgspec.json.encode(self.kept), type=Kept), boot)

    def see(self, *looks: HostLook, every: float = 30.0) -> "Host":
        for one in looks:
            self.seconds += every
            self.kept, states = self.watch.judge(one, NOW + self.seconds, self.seconds)
            self.memory = absorb(self.memory, "host", Report(states=states), NOW + self.seconds, RULES)
        return self

    def found(self) -> dict[str, str]:
        return {evidence.code: evidence.subject_id for evidence in self.memory.findings}

    def verdict(self) -> Verdict:
        return conclude(self.memory, NOW + self.seconds, RULES).node.verdict


DIMM_OK = DIMM(name="mc0/dimm3", label="CPU0_DIMM_A1", corrected=5, uncorrected=2)
SATA = Mount("/dev/sda1", "/", writable=True)

FAULTS = {
    "host/disk-full": look(disks=(msgspec.structs.replace(ROOM, blocks_free=10),)),
    "host/disk-nearly-full": look(disks=(msgspec.structs.replace(ROOM, inodes_free=40),)),
    "host/disk-unreadable": look(disks=(Disk(path="/", problem="can't be read: Input/output error"),)),
    "host/read-only": look(mounts=(msgspec.structs.replace(SATA, writable=False),)),
    "host/clock-unsynchronised": look(clock=Clock(synchronised=False, offset=0, error_max=16)),
    "host/clock-offset": look(clock=Clock(synchronised=True, offset=-0.3, error_max=0.5)),
    "host/clock-jump": look(ahead=3600.0),
    "host/memory-pressure": look(memory=MainMemory(stalled=0.25, available=GIB)),
    "host/memory-low": look(memory=MainMemory(stalled=0.0, available=50 * 1024**2)),
    "host/memory-corrected": look(dimms=(msgspec.structs.replace(DIMM_OK, corrected=16),)),
    "host/memory-uncorrected": look(dimms=(msgspec.structs.replace(DIMM_OK, uncorrected=3),)),
}
BEFORE = look(mounts=(SATA,), dimms=(DIMM_OK,))


def test_every_code_of_the_host_has_a_test():
    assert {code for code in RULES.catalogue.codes if code.startswith("host/")} == FAULTS.keys()


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_is_found_judged_and_gone_when_it_is_over(code):
    host = Host().see(BEFORE, BEFORE)
    assert host.found() == {}
    host.see(FAULTS[code])
    assert set(host.found()) == {code}
    row = RULES.catalogue.of(code)
    judged = conclude(host.memory, NOW + host.seconds, RULES)
    assert (judged.node.verdict, judged.node.score) == (row.verdict, round(100 * (1 - row.weight)))
    assert not row.verdict.hard
    finding = host.memory.findings[0]
    assert finding.subject is SubjectKind.NODE
    assert finding.line
    days = 3 if "memory-" in code or "jump" in code else 0.01
    after = msgspec.structs.replace(FAULTS[code], **{field: getattr(BEFORE, field) for field in _changed(code)})
    assert host.see(*[after] * 4, every=max(30.0, days * 86400 / 3)).found() == {}


def _changed(code: str) -> list[str]:
    counted = {"host/clock-jump", "host/memory-corrected", "host/memory-uncorrected"}  # what rose stays risen
    fields = ("disks", "mounts", "clock", "memory")
    return [field for field in fields if code not in counted]


def test_a_fault_is_found_again_after_a_restart_of_the_agent():
    for code in ("host/read-only", "host/memory-uncorrected", "host/clock-unsynchronised"):
        host = Host().see(BEFORE, FAULTS[code])
        host.restart()
        assert set(host.see(*[FAULTS[code]] * 5).found()) == {code}


def test_a_reboot_forgets_what_was_writable_and_what_rose():
    for code in ("host/read-only", "host/memory-uncorrected", "host/clock-unsynchronised"):
        host = Host().see(BEFORE, FAULTS[code])
        host.restart("boot-2")
        again = msgspec.structs.replace(FAULTS[code], boot_id="boot-2")
        assert host.see(again, again, again).found() == {}


def test_a_file_system_that_was_mounted_read_only_on_purpose_is_no_fault():
    assert Host().see(*[look(mounts=(Mount("/dev/sr0", "/media", writable=False),))] * 5).found() == {}


@pytest.mark.parametrize("path", [f"{PODS}/uid/volumes/pv", "/boot"])
def test_volumes_of_pods_and_the_boot_folder_are_not_judged(path):
    volume = Mount("/dev/sdb", path, writable=True)
    again = msgspec.structs.replace(volume, writable=False)
    assert Host().see(look(mounts=(volume,)), look(mounts=(again,))).found() == {}


def test_a_clock_that_was_never_in_step_is_no_finding():
    assert Host().see(*[FAULTS["host/clock-unsynchronised"]] * 3).found() == {}


def test_a_clock_that_nothing_corrects_for_hours_is_told():
    host = Host().see(look(clock=Clock(synchronised=True, offset=0, error_max=8)))
    assert set(host.found()) == {"host/clock-offset"}


def test_a_few_corrected_errors_and_a_lifetime_of_them_are_no_finding():
    many = msgspec.structs.replace(DIMM_OK, corrected=10**6, uncorrected=50)
    some = msgspec.structs.replace(many, corrected=10**6 + 10)
    assert Host().see(look(dimms=(many,)), look(dimms=(some,))).found() == {}


def test_a_count_that_can_not_be_read_once_is_no_rise():
    mute = msgspec.structs.replace(DIMM_OK, corrected=None, uncorrected=None)
    assert Host().see(*(look(dimms=(dimm,)) for dimm in (DIMM_OK, mute, DIMM_OK))).found() == {}


def test_slow_drift_of_the_clock_is_no_jump():
    assert Host().see(*(look(ahead=0.4 * step) for step in range(10))).found() == {}


def test_file_systems_without_limits_are_not_full():
    assert Host().see(look(disks=(Disk(path="/"),))).found() == {}


def test_one_disk_seen_through_two_paths_is_one():
    other = msgspec.structs.replace(ROOM, path="/var", blocks_free=495)
    assert judged_disks([ROOM, other], ["/var"]) == (ROOM,)
    for differs in ({"blocks": 2000}, {"blocks_free": 10}, {"problem": "gone"}):
        one = msgspec.structs.replace(other, **differs)
        assert judged_disks([ROOM, one], ["/var"]) == (ROOM, one)


def test_only_what_must_be_written_is_told_as_read_only():
    root, state = (msgspec.structs.replace(ROOM, path=path, read_only=True) for path in ("/", "/var/lib/outrider"))
    assert judged_disks([root, state], [state.path]) == (ROOM, state)
    assert Host().see(look(disks=(state,))).found() == {"host/read-only": "/var/lib/outrider"}


MOUNTS = """\
proc /proc proc rw,relatime 0 0
/dev/nvme0n1p2 / ext4 rw,relatime,errors=remount-ro 0 0
/dev/sdb1 /data\\040one xfs ro,relatime 0 0
overlay /run/containerd overlay ro 0 0
half a line
"""


def test_mount_tables_are_read():
    assert mounts_of(MOUNTS) == (
        Mount("/dev/nvme0n1p2", "/", writable=True),
        Mount("/dev/sdb1", "/data one", writable=False),
    )


PRESSURE = "some avg10=0.00 avg60=9.10 avg300=0.00 total=0\nfull avg10=1.00 avg60=12.50 avg300=0.00 total=7\n"


def test_pressure_and_meminfo_are_read():
    assert memory_of(PRESSURE, "MemTotal:       98767360 kB\nMemAvailable:    1024 kB\n") == MainMemory(
        stalled=0.125, available=1024**2
    )
    assert memory_of("", "") == MainMemory()


def timex(offset: int = 0, error_max: int = 0, status: int = 0) -> bytes:
    return struct.pack("=i4xqqqqi", 0, offset, 0, error_max, 0, status).ljust(208, b"\0")


def test_the_answer_of_adjtimex_is_read():
    clock = clock_of(timex(offset=-5, error_max=7), 0)
    assert (clock.synchronised, clock.offset, clock.error_max) == (True, pytest.approx(-5e-6), pytest.approx(7e-6))
    assert clock_of(timex(offset=5, status=0x2001), 0).offset == pytest.approx(5e-9)
    assert not clock_of(timex(status=0x40), 5).synchronised
    assert not clock_of(timex(), 5).synchronised
    assert clock_of(timex(), -1) is None
    assert clock_of(b"", 0) is None


def test_the_kernel_of_this_machine_answers():
    clock = _kernel_clock()()
    assert clock is not None
    assert 0 <= clock.error_max <= 1000


@given(st.text(max_size=300), st.text(max_size=300), st.binary(max_size=300), st.integers(-2, 9))
def test_no_text_upsets_a_parser(one, other, raw, state):
    assert all(mount.device is not None for mount in mounts_of(one))
    memory = memory_of(one, other)
    assert memory.stalled is None or 0 <= memory.stalled <= 1
    assert memory.available is None or memory.available >= 0
    clock_of(raw, state)


@given(
    st.from_regex(r"(full|some) avg10=\S* avg60=\d{0,6}\.?\d{0,6}.*\n?(MemAvailable: +\d{0,30} kB)?", fullmatch=True)
)
def test_no_number_upsets_a_parser(text):
    memory = memory_of(text, text)
    assert memory.stalled is None or 0 <= memory.stalled <= 1


COUNTS = st.none() | st.integers(0, 2**64 - 1)
DISKS = st.builds(
    Disk,
    path=st.sampled_from(["/", "/var"]),
    blocks=st.integers(0, 2**63),
    blocks_free=st.integers(0, 2**63),
    inodes=st.integers(0, 2**63),
    inodes_free=st.integers(0, 2**63),
    read_only=st.booleans(),
    problem=st.sampled_from(["", "gone"]),
)
LOOKS = st.builds(
    HostLook,
    boot_id=st.sampled_from(["", "one", "two"]),
    disks=st.lists(DISKS, max_size=3).map(tuple),
    mounts=st.lists(st.builds(Mount, st.just("/dev/a"), st.just("/"), st.booleans()), max_size=3).map(tuple),
    clock=st.none() | st.builds(Clock, synchronised=st.booleans(), offset=st.floats(-9, 9), error_max=st.floats(0, 99)),
    ahead=st.floats(-1e10, 1e10),
    memory=st.builds(MainMemory, stalled=st.none() | st.floats(0, 1), available=COUNTS),
    dimms=st.lists(st.builds(DIMM, name=st.just("mc0"), corrected=COUNTS, uncorrected=COUNTS), max_size=2).map(tuple),
)


@given(st.lists(LOOKS, max_size=6))
def test_no_series_of_looks_upsets_the_judgement_or_acts_on_hardware(looks):
    host = Host().see(*looks)
    assert all(evidence.code in RULES.catalogue for evidence in host.memory.findings)
    assert not host.verdict().hard


def probe(tmp_path: Path) -> HostProbe:
    settings = Config(
        sys_path=str(tmp_path / "sys"),
        proc_path=str(tmp_path / "proc"),
        state_dir=str(tmp_path / "state"),
        kubelet_pods_dir=str(tmp_path / "pods"),
        boot_id_path=str(tmp_path / "boot_id"),
    )
    return HostProbe(settings, lambda: IN_STEP)


async def codes(source: HostProbe) -> set[str]:
    report = await source.read()
    return {evidence.code for evidence in report.states.bad} - {"host/disk-nearly-full", "host/disk-full"}


async def test_the_probe_reads_the_trees_that_it_is_given(tmp_path):
    write(tmp_path / "proc/1", mounts="/dev/sda1 / ext4 rw 0 0\n")
    write(tmp_path / "proc/pressure", memory=PRESSURE)
    write(tmp_path / "proc", meminfo="MemAvailable:    1024 kB")
    write(tmp_path, boot_id="boot-1")
    controller = tmp_path / "sys/devices/system/edac/mc"
    write(controller / "mc0/dimm0", dimm_ce_count=0, dimm_ue_count=0, dimm_label="A1")
    write(controller / "mc1", ce_count=0, ue_count=0)
    source = probe(tmp_path)
    assert await codes(source) == {"host/memory-pressure", "host/memory-low"}
    write(tmp_path / "proc/1", mounts="/dev/sda1 / ext4 ro 0 0\n")
    write(controller / "mc0/dimm0", dimm_ue_count=1)
    write(controller / "mc1", ce_count=100)
    expected = {"host/read-only", "host/memory-uncorrected", "host/memory-corrected"}
    assert expected <= await codes(source)
    assert expected <= await codes(probe(tmp_path)), "a restart of the agent forgets none of it"


async def test_a_machine_that_shows_nothing_of_all_this_is_well(tmp_path):
    assert await codes(probe(tmp_path)) == set()


async def test_garbage_in_every_file_is_no_finding(tmp_path):
    for name in ("mounts", "net"):
        write(tmp_path / "proc/1", **{name: "\x00garbage 9999999999999999999999999999"})
    write(tmp_path / "proc/pressure", memory="full avg60=nan")
    write(tmp_path / "proc", meminfo="MemAvailable: -5 kB")
    write(tmp_path / "sys/devices/system/edac/mc/mc0/dimm0", dimm_ce_count="-1", dimm_ue_count="x" * 5000)
    source = probe(tmp_path)
    assert await codes(source) == await codes(source) == set()
