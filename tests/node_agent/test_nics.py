import shutil
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.config import Config
from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Memory
from node_agent.probes.nics import Kept, NICProbe, SysfsNICs
from node_agent.probes.registry import NoData
from node_agent.probes.report import Report
from node_agent.readings.nic_inventory import Inventory
from node_agent.readings.nic_judging import COUNTER_RULES, NICWatch
from node_agent.readings.nic_readings import (
    Look,
    NICReading,
    PortReading,
    default_routes,
    lanes_of,
    name_of,
    node_of,
    rate_of,
    transfers_of,
)
from node_agent.readings.rises import counter_of
from outrider.api.gpunode import Health, Verdict
from outrider.health.catalogue import load
from tests.node_agent.sysfs_tree import CX7, Host, hgx, write

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
HOUR = 3600.0


class Node:
    """Reads a pretended host again and again and judges it as the agent does; its clock is moved by the test."""

    def __init__(self, host: Host, **watch):
        self.host, self.memory, self.inventory = host, Memory(), Inventory()
        self.seconds, self.boot = 0.0, "boot-1"
        self.settings = watch
        self.restart()

    def restart(self) -> None:
        self.sysfs = SysfsNICs(str(self.host.sys), str(self.host.proc), str(self.host.dev))
        self.watch = NICWatch(**self.settings)

    def look(self, times: int = 1, every: float = 5.0) -> "Node":
        for _ in range(times):
            self.seconds += every
            look = msgspec.structs.replace(self.sysfs.read(self.seconds), boot_id=self.boot)
            self.inventory, states = self.watch.judge(self.inventory, look, NOW + self.seconds, self.seconds)
            self.inventory = msgspec.json.decode(msgspec.json.encode(self.inventory), type=Inventory)
            self.memory = absorb(self.memory, "nics", Report(states=states), NOW + self.seconds, RULES)
        return self

    def found(self) -> dict[str, str]:
        return {evidence.code: evidence.subject_id for evidence in self.memory.findings}

    def line(self, code: str) -> str:
        return next(evidence.line for evidence in self.memory.findings if evidence.code == code)

    def judged(self):
        return conclude(self.memory, NOW + self.seconds, RULES)

    def verdict(self) -> Verdict:
        return self.judged().node.verdict


@pytest.fixture
def host(tmp_path) -> Host:
    return hgx(tmp_path)


@pytest.fixture
def node(host) -> Node:
    return Node(host).look(3)


def expect_only(node: Node, code: str, subject: str, verdict: Verdict) -> None:
    """The fault is found on its subject, judged as the catalogue says, and no other adapter loses a point."""
    assert node.found() == {code: subject}
    judged = node.judged()
    sick, _, _ = subject.partition("/")
    weight, number = RULES.catalogue.of(code).weight, len(node.memory.nics)
    assert (judged.node.verdict, judged.node.score) == (verdict, round(100 * (1 - weight / number)))
    scores = {name: opinion.score for name, opinion in judged.nics.items()}
    assert scores == dict.fromkeys(scores, 100) | {sick: round(100 * (1 - weight))}
    assert sick in node.line(code)


def test_a_healthy_node_has_no_findings(node):
    assert node.look(100).found() == {}


def test_a_port_that_goes_down_holds_new_work_back_and_heals_after_the_dwell(host, node):
    host.down("mlx5_3")
    expect_only(node.look(), "nic/port-down", "mlx5_3/1", Verdict.NO_NEW_WORK)
    assert node.line("nic/port-down") == "mlx5_3/1: state DOWN, physical state Polling"
    host.up("mlx5_3")
    assert "nic/port-down" in node.look(6).found()
    assert node.look().found() == {"nic/flap": "mlx5_3/1"}
    assert node.verdict() is Verdict.WATCH
    assert node.look(int(12 * HOUR / 600) + 2, every=600).found() == {}


def test_a_port_without_a_subnet_manager_is_named_as_such(host, node):
    host.set("mlx5_0", state="2: INIT")
    expect_only(node.look(), "nic/port-init", "mlx5_0/1", Verdict.NO_NEW_WORK)


def test_a_port_that_is_switched_off_says_so(host, node):
    host.set("mlx5_0", state="1: DOWN", phys_state="3: Disabled")
    node.look()
    assert node.line("nic/port-down").endswith("physical state Disabled")


@pytest.mark.parametrize("state", ["", "9: SIDEWAYS", "garbage", "\x00" * 50, "4", "-1: DOWN"])
def test_a_state_that_can_not_be_read_is_silence_and_clears_nothing(host, node, state):
    host.down("mlx5_2")
    node.look()
    host.set("mlx5_2", state=state)
    node.look(20)
    assert node.found() == {"nic/port-down": "mlx5_2/1", "nic/unreadable": "mlx5_2/1"}
    assert node.verdict() is Verdict.NO_NEW_WORK
    host.up("mlx5_2")
    assert set(node.look(8).found()) == {"nic/flap"}


def test_a_port_whose_file_fails_to_read_is_unreadable_and_hides_no_other(host, node):
    state = host.folder("mlx5_4") / "state"
    state.unlink()
    state.mkdir()  # a folder in place of the file answers EISDIR
    host.down("mlx5_5")
    assert node.look().found() == {"nic/unreadable": "mlx5_4/1", "nic/port-down": "mlx5_5/1"}
    assert node.judged().node.health in (Health.UNKNOWN, Health.DEGRADED)
    assert "Is a directory" in node.line("nic/unreadable")


def test_a_slow_port_is_found_by_its_siblings_and_by_what_it_was(host, tmp_path):
    host.set("mlx5_6", rate="200 Gb/sec (2X NDR)")
    expect_only(Node(host).look(), "nic/rate-low", "mlx5_6/1", Verdict.NO_NEW_WORK)
    pair = Host(tmp_path / "pair").add("mlx5_0").add("mlx5_1")
    node = Node(pair).look()
    pair.up("mlx5_1", rate=100)
    expect_only(node.look(), "nic/rate-low", "mlx5_1/1", Verdict.NO_NEW_WORK)
    assert "100 Gbit/s, 400 Gbit/s before" in node.line("nic/rate-low")
    pair.up("mlx5_1")
    assert node.look(8).found() == {}


def test_a_fabric_that_is_slower_since_a_reboot_is_taken_as_it_is(host, node):
    for number in range(8):
        host.up(f"mlx5_{number}", rate=200)
    assert set(node.look().found()) == {"nic/rate-low"}
    node.boot = "boot-2"
    assert node.look(8).found() == {}


@pytest.mark.parametrize("name", ["mlx5_0", "mlx5_7"])
def test_an_adapter_that_vanishes_is_missing_after_three_looks(host, node, name):
    host.remove(name)
    assert node.look(2).found() == {}
    expect_only(node.look(), "nic/missing", name, Verdict.NO_NEW_WORK)
    host.add(name, bus=int(name[-1]) + 1, numa=int(name[-1]) // 4)
    assert node.look(8).found() == {}


def test_an_adapter_that_a_reboot_or_a_restart_did_not_bring_back_is_missing(host, node):
    address = host.device("mlx5_2").name
    host.remove("mlx5_2")
    host.remove("mlx5_7")  # the kernel gives names in order: the last name is free, not the lost adapter's
    host.add("mlx5_2", bus=8, numa=1)
    node.boot = "boot-2"
    node.restart()
    expect_only(node.look(3), "nic/missing", address, Verdict.NO_NEW_WORK)


def test_an_adapter_that_was_replaced_is_forgotten_with_all_that_was_known_against_it(host, node):
    host.down("mlx5_2")
    assert set(node.look().found()) == {"nic/port-down"}
    host.remove("mlx5_2")
    host.add("mlx5_new", bus=99)
    assert node.look(10).found() == {}


def test_all_adapters_gone_is_not_the_same_as_none_ever(host, node, tmp_path):
    for number in range(10):
        host.remove(f"mlx5_{number}")
    node.look(3)
    missing = {evidence.subject_id for evidence in node.memory.findings if evidence.code == "nic/missing"}
    assert missing == {f"mlx5_{number}" for number in range(8)}
    assert Node(Host(tmp_path / "bare")).look(5).found() == {}


def test_a_port_that_vanishes_is_missing_after_three_looks(tmp_path):
    host = Host(tmp_path).add("mlx5_0").add("mlx5_1")
    for name in ("mlx5_0", "mlx5_1"):
        host.port(name, 2)
    node = Node(host).look()
    shutil.rmtree(host.folder("mlx5_1", 2))
    assert node.look(2).found() == {}
    expect_only(node.look(), "nic/port-missing", "mlx5_1/2", Verdict.NO_NEW_WORK)
    host.port("mlx5_1", 2)
    assert node.look(20).found() == {}


def test_a_port_that_was_never_cabled_is_no_fault(tmp_path):
    host = Host(tmp_path).add("mlx5_0").add("mlx5_1").add("mlx5_2").add("mlx5_3")
    host.down("mlx5_1")
    host.down("mlx5_3")
    assert Node(host).look(5).found() == {}


def test_a_port_that_never_came_up_is_a_fault_where_most_siblings_are_up(host):
    host.down("mlx5_1")
    expect_only(Node(host).look(), "nic/port-down", "mlx5_1/1", Verdict.NO_NEW_WORK)


def test_storage_and_management_adapters_are_not_judged(host, node):
    for name in ("mlx5_8", "mlx5_9"):
        host.down(name)
        host.count(name, symbol_error=10**9)
        write(host.device(name), current_link_width=1)
    assert node.look(5).found() == {}
    host.remove("mlx5_9")
    assert node.look(5).found() == {}


def test_the_adapter_below_the_default_routes_bond_is_for_management(tmp_path):
    host = Host(tmp_path).add("mlx5_0").add("mlx5_1")
    host.netdev("mlx5_1", "eth1")
    host.below("bond0", "eth1")
    host.below("br0", "bond0")
    host.route("br0")
    node = Node(host).look()
    host.route()  # it takes the default route with it
    host.down("mlx5_1")
    assert node.look(5).found() == {}
    host.down("mlx5_0")
    assert node.look().found() == {"nic/port-down": "mlx5_0/1"}


def test_the_only_adapter_alone_on_its_numa_node_is_for_management(tmp_path):
    host = Host(tmp_path)
    for number in range(4):
        host.add(f"mlx5_{number}", numa=0)
    host.add("mlx5_4", numa=1)
    node = Node(host).look()
    host.down("mlx5_4")
    assert node.look(5).found() == {}


def test_virtual_functions_sub_functions_and_software_devices_are_not_judged(host, node):
    host.add("mlx5_20")
    host.device("mlx5_20").joinpath("physfn").symlink_to(host.device("mlx5_0"))
    for name, parent in (("rxe0", None), ("mlx5_21", "mlx5_core.sf.4")):
        soft = host.sys / "devices/virtual" / (parent or "") / "infiniband" / name
        write(soft / "ports/1", state="1: DOWN")
        (host.sys / "class/infiniband" / name).symlink_to(soft)
        if parent:
            (soft / "device").symlink_to(host.sys / "devices/virtual" / parent)
    node.look(3)
    host.remove("mlx5_20")
    (host.sys / "class/infiniband/mlx5_21").unlink()
    assert node.look(5).found() == {}


def test_a_second_device_of_one_pci_function_is_part_of_the_first(host, node):
    part = host.device("mlx5_0") / "infiniband/smi1"
    write(part / "ports/1", state="1: DOWN")
    (part / "device").symlink_to(host.device("mlx5_0"))
    (host.sys / "class/infiniband/smi1").symlink_to(part)
    assert node.look(5).found() == {}
    host.down("mlx5_0")
    assert node.look().found() == {"nic/port-down": "mlx5_0/1"}


def test_ignored_adapters_are_not_judged_and_what_was_known_against_them_clears(host, node):
    host.down("mlx5_1")
    node.look()
    node.settings = {"ignored": ["mlx5_1*", "rdma*"]}
    node.restart()
    assert node.look(8).found() == {}


def test_fewer_adapters_than_expected_is_told_where_nothing_else_names_the_one(host):
    node = Node(host, expected=9).look(3)
    assert node.found() == {"nic/count": ""}
    assert node.verdict() is Verdict.NO_NEW_WORK
    assert node.line("nic/count") == "8 RDMA devices have a port up, 9 are expected"
    host.down("mlx5_1")
    assert set(node.look(8).found()) == {"nic/port-down"}


def test_pcie_width_is_judged_always_and_speed_more_mildly(host, node):
    write(host.device("mlx5_1"), current_link_width=8)
    expect_only(node.look(), "nic/pcie-width", "mlx5_1", Verdict.NO_NEW_WORK)
    write(host.device("mlx5_1"), current_link_width=16, current_link_speed="8.0 GT/s PCIe")
    assert node.look(8).found() == {"nic/pcie-speed": "mlx5_1"}
    assert (node.verdict(), node.judged().nics["mlx5_1"].score) == (Verdict.WATCH, 80)


def test_adapters_that_all_have_the_same_few_lanes_may_be_built_so(host, node):
    for number in range(8):
        write(host.device(f"mlx5_{number}"), current_link_width=8)
    assert set(node.look().found()) == {"nic/pcie-narrow"}
    assert node.verdict() is Verdict.WATCH
    write(host.device("mlx5_3"), current_link_width=4)
    assert node.look(8).found()["nic/pcie-width"] == "mlx5_3"
    assert sum(evidence.code == "nic/pcie-width" for evidence in node.memory.findings) == 1


def test_two_ports_that_become_a_bond_are_not_missing(tmp_path):
    host = Host(tmp_path).add("mlx5_0", bus=1).add("mlx5_1", bus=1, function=1).add("mlx5_2", bus=2)
    node = Node(host).look()
    host.remove("mlx5_0")
    host.remove("mlx5_1")
    host.add("mlx5_bond_0", bus=1)
    assert node.look(10).found() == {}


def test_a_slot_with_fewer_lanes_than_the_card_is_no_fault(tmp_path):
    host = Host(tmp_path).add("mlx5_0")
    write(host.device("mlx5_0"), current_link_width=8, current_link_speed="16.0 GT/s PCIe")
    write(host.device("mlx5_0").parent, max_link_width=8, max_link_speed="16.0 GT/s PCIe")
    assert Node(host).look(3).found() == {}


@pytest.mark.parametrize("width", ["0", "63", "255", "Unknown", "", "-1", "9" * 5000])
def test_a_width_that_the_kernel_does_not_know_is_no_fault(host, node, width):
    write(host.device("mlx5_0"), current_link_width=width, current_link_speed="Unknown")
    assert node.look(3).found() == {}


def test_missing_device_nodes_stop_work_only_where_programs_need_them(host, node):
    (host.dev / "infiniband/uverbs3").unlink()
    expect_only(node.look(), "nic/device-node", "mlx5_3", Verdict.NO_NEW_WORK)
    write(host.dev / "infiniband", uverbs3="")
    (host.dev / "infiniband/umad4").unlink()
    assert node.look(8).found() == {"nic/management-node": "mlx5_4"}
    assert node.verdict() is Verdict.WATCH
    shutil.rmtree(host.dev / "infiniband")  # not mounted into the agent's container
    assert node.look(8).found() == {}


def test_an_adapter_that_the_kernel_offers_to_no_program_is_found(host, node):
    (host.sys / "class/infiniband_verbs/uverbs2").unlink()
    assert node.look(13).found() == {"nic/verbs-missing": "mlx5_2"}


RISES = {rule.code: rule for rule in COUNTER_RULES}


@pytest.mark.parametrize("code", sorted(RISES))
def test_each_counter_is_found_by_its_rate_and_clears_when_the_window_is_clean(code, tmp_path):
    rule = RISES[code]
    host = Host(tmp_path)
    for number in range(4):
        host.add(f"efa_{number}", layer="Unspecified", board="")
    kind = "counters" if "error" in rule.counter and "efa" not in code else "hw_counters"
    host.count("efa_1", kind=kind, **{rule.counter: 10**6})
    node = Node(host).look(3)
    assert node.found() == {}, "a lifetime total is no fault"
    host.count("efa_1", kind=kind, **{rule.counter: 10**6 + rule.limit})
    assert code not in node.look().found(), "the limit itself is allowed"
    host.count("efa_1", kind=kind, **{rule.counter: 10**6 + rule.limit + 1})
    assert node.look().found()[code] == "efa_1/1"
    assert node.verdict() is RULES.catalogue.of(code).verdict
    assert rule.counter in node.line(code)
    host.count("efa_1", kind=kind, **{rule.counter: 0})  # the driver was loaded anew
    assert code not in node.look(int(rule.window_seconds / 5) + 10).found()


def test_counters_of_the_efa_device_itself_are_read_too(tmp_path):
    host = Host(tmp_path)
    for number in range(4):
        host.add(f"efa_{number}", layer="Unspecified", board="")
        write(host.sys / f"class/infiniband/efa_{number}/hw_counters", no_completion_cmds=3, cmds_err=0)
    node = Node(host).look()
    write(host.sys / "class/infiniband/efa_2/hw_counters", no_completion_cmds=4)
    expect_only(node.look(), "nic/efa-no-completion", "efa_2", Verdict.NO_NEW_WORK)


def test_a_slow_rise_over_a_long_gap_is_no_high_rate(host, node):
    host.count("mlx5_0", kind="hw_counters", roce_slow_restart=200)  # 200 in five minutes, not in ten seconds
    assert node.look(every=300).found() == {}


@pytest.mark.parametrize("value", ["N/A (no PMA)", "-5", "", "9" * 30, "1e9", "٣"])
def test_a_counter_that_is_no_number_is_no_fault(host, node, value):
    host.count("mlx5_0", symbol_error=value)
    assert node.look(3).found() == {}
    host.count("mlx5_0", symbol_error=5)
    assert node.look(3).found() == {}


def test_a_port_that_flaps_three_times_in_twelve_hours_and_then_is_quiet_comes_back_by_itself(host, node):
    for _ in range(3):
        host.down("mlx5_5")
        node.look(6)  # 30 s
        host.up("mlx5_5")
        node.look(12)
        node.look(int(HOUR / 600), every=600)
    assert node.found() == {"nic/flapping": "mlx5_5/1"}
    assert node.verdict() is Verdict.NO_NEW_WORK
    node.restart()  # neither a restart of the agent nor a reboot forgets it
    node.boot = "boot-2"
    assert node.look().found() == {"nic/flapping": "mlx5_5/1"}
    node.look(int(9.5 * HOUR / 600), every=600)
    assert node.found() == {"nic/flap": "mlx5_5/1"}
    assert node.verdict() is Verdict.WATCH
    node.look(int(3 * HOUR / 600), every=600)
    assert (node.found(), node.judged().node.score) == ({}, 100)


def test_flaps_between_two_looks_are_found_by_the_links_own_counter(host, node):
    host.count("mlx5_5", link_downed=3)
    assert node.look().found() == {"nic/flapping": "mlx5_5/1"}


def test_flaps_of_ethernet_are_found_by_the_carrier_and_those_of_ipoib_are_not(tmp_path):
    host = Host(tmp_path)
    for number in range(3):
        host.add(f"mlx5_{number}", layer="Ethernet")
        host.netdev(f"mlx5_{number}", f"eth1{number}")
    node = Node(host).look()
    write(host.device("mlx5_1") / "net/eth11", carrier_changes=8)
    assert node.look().found() == {"nic/flapping": "mlx5_1/1"}
    infiniband = Host(tmp_path / "ib").add("mlx5_0")
    infiniband.netdev("mlx5_0", "ib0")
    other = Node(infiniband).look()
    write(infiniband.device("mlx5_0") / "net/ib0", carrier_changes=100)
    assert other.look().found() == {}


def test_one_flap_seen_by_port_state_and_counter_counts_once(host, node):
    host.down("mlx5_5")
    host.count("mlx5_5", link_downed=1)
    node.look(2)
    host.up("mlx5_5")
    node.look(8)
    assert "once" in node.line("nic/flap")


def test_a_clock_that_was_set_back_does_not_keep_a_flap_for_ever(host, node):
    host.count("mlx5_5", link_downed=3)
    node.look()
    node.seconds -= 1e6
    node.look()
    assert set(node.found()) == {"nic/flapping"}
    assert node.look(int(12 * HOUR / 600) + 2, every=600).found() == {}


def config(host: Host, tmp_path, **settings) -> Config:
    boot = tmp_path / "boot_id"
    boot.write_text("boot-1\n")
    paths = {"sys_path": str(host.sys), "proc_path": str(host.proc), "dev_path": str(host.dev)}
    return Config(**paths, state_dir=str(tmp_path / "state"), boot_id_path=str(boot), **settings)


async def test_the_probe_remembers_its_adapters_over_a_restart(host, tmp_path):
    settings = config(host, tmp_path)
    report = await NICProbe(settings).read()
    assert report.states.bad == ()
    assert report.addresses["pci:00000000:05:02.0"] == "mlx5_4", "so that the kernel log's findings get its name"
    host.remove("mlx5_4")
    probe = NICProbe(settings)
    for _ in range(3):
        report = await probe.read()
    assert [(evidence.code, evidence.subject_id) for evidence in report.states.bad] == [("nic/missing", "mlx5_4")]


async def test_a_node_without_rdma_has_no_data_and_one_without_sysfs_is_blind(tmp_path):
    bare = Host(tmp_path / "bare")
    with pytest.raises(NoData):
        await NICProbe(config(bare, tmp_path)).read()
    shutil.rmtree(bare.sys)
    with pytest.raises(FileNotFoundError):
        await NICProbe(config(bare, tmp_path)).read()


async def test_a_state_folder_that_can_not_be_written_blinds_nothing(host, tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    probe = NICProbe(config(host, tmp_path))
    for _ in range(3):
        assert (await probe.read()).states.bad == ()


async def test_a_high_rate_is_known_after_a_restart_and_not_after_a_reboot(host, tmp_path):
    settings = config(host, tmp_path)
    probe = NICProbe(settings)
    await probe.read()
    host.count("mlx5_1", symbol_error=1000)
    codes = {evidence.code for evidence in (await probe.read()).states.bad}
    assert codes == {"nic/symbol-errors", "nic/symbol-errors-lasting"}
    host.count("mlx5_1", symbol_error=1001)
    again = (await NICProbe(settings).read()).states.bad
    assert "nic/symbol-errors-lasting" in {evidence.code for evidence in again}
    (tmp_path / "boot_id").write_text("boot-2\n")
    assert (await NICProbe(settings).read()).states.bad == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"nics": 3}', b"\xff\x00" * 1000, b"[" * 100_000])
async def test_a_kept_file_that_is_unusable_is_written_anew(host, tmp_path, content):
    (tmp_path / "state").mkdir()
    (tmp_path / "state/nics.json").write_bytes(content)
    assert (await NICProbe(config(host, tmp_path)).read()).states.bad == ()
    assert msgspec.json.decode((tmp_path / "state/nics.json").read_bytes(), type=Kept).inventory.nics


TEXTS = st.text(max_size=200) | st.from_regex(r"-?\d{1,40}(: ?[A-Z]+| Gb/sec.*| GT/s.*)?", fullmatch=True)


@given(TEXTS)
def test_no_text_upsets_a_parser(text):
    for read in (rate_of, counter_of, lanes_of, transfers_of, node_of):
        value = read(text)
        assert value is None or value >= 0
    assert len(name_of(text)) <= 40
    assert all(isinstance(netdev, str) for netdev in default_routes(text, text))
    port = PortReading(number=1, state=text)
    assert port.up in (True, False)
    assert not (port.up and port.logical is None)


PORTS = st.builds(
    PortReading,
    number=st.integers(0, 3),
    state=st.sampled_from(["4: ACTIVE", "1: DOWN", "2: INIT", "7: NEW", "", "x"]),
    rate=st.none() | st.floats(0, 1e6),
    counters=st.dictionaries(st.sampled_from([rule.counter for rule in COUNTER_RULES]), st.integers(0, 2**64 - 1)),
    carrier_losses=st.none() | st.integers(0, 2**63),
    problem=st.sampled_from(["", "Input/output error"]),
)
NICS = st.builds(
    NICReading,
    name=st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_2"]),
    pci_address=st.sampled_from(["a", "b", "c", "d"]),
    board=st.sampled_from(["", CX7]),
    link_layer=st.sampled_from(["InfiniBand", "Ethernet", "?"]),
    numa_node=st.none() | st.integers(0, 2),
    netdevs=st.lists(st.sampled_from(["eth0", "ib0"])).map(tuple),
    ports=st.lists(PORTS, max_size=3, unique_by=lambda port: port.number).map(tuple),
    verbs=st.booleans(),
)
LOOKS = st.builds(
    Look,
    nics=st.lists(NICS, max_size=4, unique_by=lambda nic: nic.pci_address).map(tuple),
    boot_id=st.sampled_from(["", "one", "two"]),
    default_netdevs=st.sets(st.sampled_from(["eth0", "br0"])).map(frozenset),
)


@given(st.lists(st.tuples(LOOKS, st.floats(-1e6, 1e6)), max_size=8))
def test_no_series_of_looks_upsets_the_judgement_or_acts_on_hardware(series):
    watch, inventory, memory, now = NICWatch(), Inventory(), Memory(), NOW
    for number, (look, step) in enumerate(series):
        now += step
        inventory, states = watch.judge(inventory, look, now, float(number))
        memory = absorb(memory, "nics", Report(states=states), now, RULES)
        assert all(evidence.code in RULES.catalogue for evidence in states.bad)
        assert not conclude(memory, now, RULES).node.verdict.hard
        assert msgspec.json.decode(msgspec.json.encode(inventory), type=Inventory) == inventory


def test_a_look_at_eight_adapters_is_cheap(host):
    sysfs, watch, inventory = SysfsNICs(str(host.sys), str(host.proc), str(host.dev)), NICWatch(), Inventory()
    started = time.thread_time()
    for number in range(20):
        inventory, _ = watch.judge(inventory, sysfs.read(float(number)), NOW + number, float(number))
    assert (time.thread_time() - started) / 20 < 0.05, "one look in five seconds: below 1 % of a core at the worst"
