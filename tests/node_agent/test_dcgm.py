"""What pages of dcgm-exporter mean. A page is written as the exporter writes it, for two GPUs."""

import pytest
from around import CATALOGUE, NOW, Around
from hypothesis import given
from hypothesis import strategies as st

from node_agent.probes.report import Report, States
from node_agent.readings.dcgm import FIELDS, DCGMWatch, read_page
from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.findings import seen

HEALTHY = {
    "SM_CLOCK": 1980,
    "GPU_TEMP": 41,
    "TOTAL_ENERGY_CONSUMPTION": 1000,
    "PCIE_REPLAY_COUNTER": 7,
    "XID_ERRORS": 0,
    "ROW_REMAP_FAILURE": 0,
    "ROW_REMAP_PENDING": 0,
    "ECC_DBE_VOL_TOTAL": 0,
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": 4,
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 9,
}
BLANKS = ["9223372036854775792", "9223372036854775794", "2147483634", "140737488355328", "140737488355330.0", "NaN"]


def page(*gpus: dict[str, object], label: str = "UUID") -> str:
    lines = ["# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).", "# TYPE DCGM_FI_DEV_SM_CLOCK gauge"]
    for index, fields in enumerate(gpus):
        labels = f'gpu="{index}",{label}="GPU-{index}",pci_bus_id="00000000:0{index}:00.0",modelName="NVIDIA H100"'
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {value}" for name, value in fields.items()]
    return "\n".join([*lines, ""])


class Exporter:
    """Pages one after the other, judged and taken in as the agent does it."""

    def __init__(self) -> None:
        self.around = Around()
        self.watch = DCGMWatch()
        self.now = 0.0
        self.energy = 0

    def shows(self, *, seconds: float = 30.0, on=1, frozen=False, **fields) -> dict[str, str]:
        """Return the findings of DCGM after a page on which one GPU shows other values than a healthy one."""
        self.energy += 0 if frozen else 1000
        healthy = HEALTHY | {"TOTAL_ENERGY_CONSUMPTION": self.energy}
        gpus = [healthy, healthy]
        gpus[on] = {name: value for name, value in {**healthy, **fields}.items() if value is not None}
        return self.read(page(*gpus), seconds)

    def read(self, text: str, seconds: float = 30.0) -> dict[str, str]:
        self.now += seconds
        memory = self.around.memory
        addresses = {record.pci_address: record.uuid for record in memory.inventory}
        states = self.watch.judge(
            read_page(text, addresses), memory.inventory, memory.findings, CATALOGUE, self.now, NOW + self.now
        )
        self.around.take("dcgm", Report(states=states), self.now)
        return {code: owner for code, owner in self.around.codes().items() if code.startswith("dcgm/")}

    def sees(self, code: str, *, owner: str = "GPU-1", source: str = "nvml") -> None:
        evidence = seen(code, NOW, subject=SubjectKind.GPU, subject_id=owner, source=source)
        self.around.memory.findings.append(evidence)


@pytest.fixture
def exporter():
    exporter = Exporter()
    assert exporter.shows() == {}
    return exporter


@pytest.mark.parametrize("names", FIELDS.values(), ids=str)
def test_a_field_is_known_by_all_its_names(names):
    [number] = [number for number, known in FIELDS.items() if known is names]
    for name in names:
        text = page({name.removeprefix("DCGM_FI_DEV_"): 3})
        assert read_page(text, {}) == {"GPU-0": {number: 3}}


@pytest.mark.parametrize("label", ["UUID", "uuid", "other"])
def test_a_gpu_is_known_by_its_uuid_or_else_its_address(label):
    text = page({"SM_CLOCK": 5}, label=label)
    assert read_page(text, {"00000000:00:00": "GPU-0"}) == {"GPU-0": {100: 5}}


def test_of_mig_instances_the_highest_value_counts():
    assert read_page(page({"XID_ERRORS": 0}) + page({"XID_ERRORS": 31}) + page({"XID_ERRORS": 13}), {})["GPU-0"] == {
        230: 31
    }


@pytest.mark.parametrize(
    ("fields", "code", "verdict", "score"),
    [
        ({"ROW_REMAP_FAILURE": 1}, "dcgm/remap-failure", Verdict.NO_NEW_WORK, 50),
        ({"ROW_REMAP_FAILURE": None, "ROW_REMAP_FAILED": 1}, "dcgm/remap-failure", Verdict.NO_NEW_WORK, 50),
        ({"ROW_REMAP_PENDING": 1}, "dcgm/remap-pending", Verdict.WATCH, 90),
        ({"ECC_DBE_VOL_TOTAL": 2}, "dcgm/ecc-uncorrected", Verdict.WATCH, 80),
        ({"THRESHOLD_SRM": 1}, "dcgm/sram-threshold", Verdict.NO_NEW_WORK, 50),
        ({"SRAM_EXCEEDED": 1}, "dcgm/sram-threshold", Verdict.NO_NEW_WORK, 50),
        ({"PCIE_REPLAY_COUNTER": 7 + 32}, "dcgm/pcie-replays", Verdict.WATCH, 90),
        ({"NVLINK_REPLAY_ERROR_COUNT_TOTAL": 5}, "dcgm/nvlink-errors", Verdict.WATCH, 90),
        ({"NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 10}, "dcgm/nvlink-errors", Verdict.WATCH, 90),
        ({"NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 6009}, "dcgm/nvlink-crc", Verdict.NO_NEW_WORK, 60),
    ],
)
def test_what_only_dcgm_shows_is_a_finding_of_that_gpu_and_recovers(exporter, fields, code, verdict, score):
    assert exporter.shows(**fields) == {code: "GPU-1"}
    judged = exporter.around.judgement(exporter.now)
    assert (judged.gpus["GPU-1"].verdict, judged.gpus["GPU-1"].score) == (verdict, score)
    assert (judged.gpus["GPU-0"].health, judged.gpus["GPU-0"].score) == (Health.HEALTHY, 100)
    well = {name: value for name, value in fields.items() if "COUNT" in name}  # counters stay where they are
    assert exporter.shows(**well, seconds=61) == {code: "GPU-1"}
    assert exporter.shows(**well) == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ROW_REMAP_FAILURE": 1}, "remap/failure"),
        ({"ROW_REMAP_PENDING": 1}, "remap/pending"),
        ({"ECC_DBE_VOL_TOTAL": 1}, "ecc/uncorrected"),
        ({"NVLINK_REPLAY_ERROR_COUNT_TOTAL": 9}, "nvlink/inactive"),
    ],
)
def test_what_nvml_says_of_the_same_gpu_is_not_said_twice(exporter, fields, code):
    exporter.sees(code, owner="GPU-0")
    assert set(exporter.shows(**fields)) != set()
    other = Exporter()
    other.shows()
    other.sees(code)
    assert other.shows(**fields) == {}


def test_a_counter_that_begins_anew_is_no_fault(exporter):
    assert exporter.shows(PCIE_REPLAY_COUNTER=0) == {}
    assert exporter.shows(PCIE_REPLAY_COUNTER=30) == {}


@pytest.mark.parametrize(
    ("link", "limit"),
    [({}, 31), ({"PCIE_MAX_LINK_GEN": 4, "PCIE_MAX_LINK_WIDTH": 16}, 16), ({"PCIE_MAX_LINK_GEN": 99}, 31)],
)
def test_the_limit_of_replays_is_that_of_the_best_the_link_can_do(link, limit):
    exporter = Exporter()
    exporter.shows(**link)
    assert exporter.shows(**link, PCIE_REPLAY_COUNTER=7 + limit, PCIE_LINK_GEN=1) == {}
    assert exporter.shows(**link, PCIE_REPLAY_COUNTER=7 + limit + 1, seconds=1) == {"dcgm/pcie-replays": "GPU-1"}


@pytest.mark.parametrize("blank", BLANKS)
def test_a_gpu_that_is_blank_for_long_is_unknown_to_dcgm_and_not_well(exporter, blank):
    silent = dict.fromkeys(HEALTHY, blank)
    for _ in range(3):
        assert exporter.shows(**silent) == {}
    assert exporter.shows(**silent) == {"dcgm/blank": "GPU-1"}
    assert exporter.around.judgement(exporter.now).gpus["GPU-1"].verdict is Verdict.WATCH
    assert exporter.around.judgement(exporter.now).gpus["GPU-0"].score == 100
    exporter.shows()
    assert exporter.shows() == {}


def test_a_page_without_gpus_is_blank_for_each(exporter):
    for _ in range(4):
        exporter.read("# nothing\n")
    assert set(exporter.around.codes()) == {"dcgm/blank"}
    assert len(exporter.around.memory.findings) == 2


def test_a_fault_stays_while_dcgm_is_blank(exporter):
    exporter.shows(ROW_REMAP_FAILURE=1)
    for _ in range(10):
        exporter.shows(**dict.fromkeys(HEALTHY, "NaN"))
    assert set(exporter.shows(**dict.fromkeys(HEALTHY, "NaN"))) == {"dcgm/remap-failure", "dcgm/blank"}


def test_one_value_that_is_blank_is_no_fault(exporter):
    for _ in range(20):
        assert exporter.shows(ROW_REMAP_FAILURE="NaN", GPU_TEMP=None) == {}


def test_values_that_stand_still_are_old(exporter):
    for _ in range(9):
        assert exporter.shows(frozen=True) == {}
    assert set(exporter.shows(frozen=True)) == {"dcgm/blank"}
    exporter.shows()
    assert exporter.shows() == {}


@pytest.mark.parametrize("code", ["gpu/lost", "gpu/missing", "gpu/reset-required"])
def test_a_gpu_that_nvml_cannot_read_either_is_not_accused_twice(exporter, code):
    exporter.sees(code)
    for _ in range(10):
        assert exporter.shows(**dict.fromkeys(HEALTHY, "NaN")) == {}


def test_an_xid_that_the_kernel_log_never_showed_is_only_watched(exporter):
    assert exporter.shows(XID_ERRORS=79) == {}
    assert exporter.shows(XID_ERRORS=79) == {"dcgm/xid-only": "GPU-1"}
    judged = exporter.around.judgement(exporter.now)
    assert judged.node.verdict is Verdict.WATCH
    assert exporter.shows(XID_ERRORS=0) == {"dcgm/xid-only": "GPU-1"}
    assert exporter.shows(XID_ERRORS=0) == {}


@pytest.mark.parametrize(("logged", "gauge"), [("xid/79", 79), ("xid/74.memory", 74), ("xid/154.2", 154)])
def test_an_xid_of_the_kernel_log_is_told_once_and_stays_known(exporter, logged, gauge):
    exporter.sees(logged, source="kernel-log")
    exporter.shows(XID_ERRORS=gauge)
    exporter.around.memory.findings.clear()  # it faded
    for _ in range(5):
        assert exporter.shows(XID_ERRORS=gauge) == {}


def test_the_log_of_another_gpu_does_not_count(exporter):
    exporter.sees("xid/79", owner="GPU-0", source="kernel-log")
    exporter.shows(XID_ERRORS=79)
    assert exporter.shows(XID_ERRORS=79) == {"dcgm/xid-only": "GPU-1"}


def test_after_a_start_a_gauge_that_may_be_of_long_ago_is_no_news():
    exporter = Exporter()
    for _ in range(5):
        assert exporter.shows(XID_ERRORS=31) == {}
    started = Exporter()
    started.shows(XID_ERRORS=79)
    assert started.shows(XID_ERRORS=79) == {"dcgm/xid-only": "GPU-1"}


def test_an_exporter_that_is_gone_is_watched_and_nothing_else():
    around = Around()
    bad = seen("dcgm/unreachable", NOW, source="dcgm")
    around.take("dcgm", Report(states=States(bad=(bad,))))
    node = around.judgement().node
    assert (node.verdict, node.health, node.score) == (Verdict.WATCH, Health.HEALTHY, 98)


@given(st.text(max_size=300), st.floats(), st.floats())
def test_no_page_is_an_error(text, one, other):
    exporter = Exporter()
    exporter.read(text)
    exporter.read(page(dict.fromkeys(HEALTHY, one), dict.fromkeys(HEALTHY, other)))
    exporter.read(page(dict.fromkeys(HEALTHY, other), dict.fromkeys(HEALTHY, one)))
    exporter.read(f'DCGM_FI_DEV_XID_ERRORS{{UUID="{text}"}} 1')
