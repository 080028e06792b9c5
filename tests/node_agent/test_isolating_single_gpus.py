"""Which hard verdicts a DeviceTaintRule holds, and which still need the node's taint."""

import pytest

from node_agent.inventory import GPURecord
from node_agent.judging import Rules, conclude
from node_agent.memory import Memory
from node_agent.publishing.devices import devices_of, isolation, labels_of, rule_for
from outrider.api.core import Node, NodeStatus
from outrider.api.gpunode import Mode, SubjectKind
from outrider.api.meta import ObjectMeta
from outrider.api.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from outrider.health.catalogue import load
from outrider.health.findings import Evidence

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
NODE = "n1.example"
DEVICES = {"GPU-0": ["gpu-0"], "GPU-1": ["gpu-1"]}


def about(uuid: str, code: str, first_seen: float = NOW) -> Evidence:
    subject = SubjectKind.GPU if uuid else SubjectKind.NODE
    return Evidence(
        code=code, subject=subject, subject_id=uuid, first_seen=first_seen, last_seen=first_seen, source="test"
    )


def decided(*findings: Evidence, devices=DEVICES, mode=Mode.AUTO):
    inventory = [GPURecord(index=index, uuid=f"GPU-{index}") for index in range(2)]
    memory = Memory(findings=list(findings), inventory=inventory)
    return isolation(memory.findings, conclude(memory, NOW + 60, RULES), devices, NODE, mode)


def test_a_lost_gpu_of_a_dra_driver_leaves_the_node_alone():
    wanted = decided(about("GPU-1", "xid/79"))
    (rule,) = wanted.rules.values()
    assert (wanted.taint, wanted.isolated) == (None, {"GPU-1"})
    assert rule.metadata.name == "outrider-gpu-1.n1.example"
    selector = rule.spec.device_selector
    assert (selector.driver, selector.pool, selector.device) == ("gpu.nvidia.com", NODE, "gpu-1")
    assert (rule.spec.taint.value, rule.spec.taint.effect) == ("xid-79", "NoSchedule")


def test_a_fault_of_the_node_taints_the_node_beside_the_rule():
    wanted = decided(about("GPU-1", "xid/79"), about("", "sxid/10003", NOW + 1))
    assert (wanted.taint, list(wanted.rules)) == ("sxid-10003", ["outrider-gpu-1.n1.example"])


def test_a_sick_gpu_that_no_slice_names_taints_the_node():
    wanted = decided(about("GPU-0", "xid/79"), about("GPU-1", "xid/95"), devices={"GPU-0": ["gpu-0"]})
    assert (wanted.taint, list(wanted.rules)) == ("xid-95", ["outrider-gpu-0.n1.example"])
    assert decided(about("GPU-1", "xid/79"), devices={}).taint == "xid-79"


def test_a_name_that_would_be_too_long_taints_the_node():
    wanted = decided(about("GPU-1", "xid/79"), devices={"GPU-1": ["g" * 250]})
    assert (wanted.taint, wanted.rules) == ("xid-79", {})


def test_all_mig_devices_of_a_gpu_are_held():
    wanted = decided(about("GPU-1", "xid/79"), devices={"GPU-1": ["gpu-1-mig-0", "gpu-1-mig-1"]})
    assert len(wanted.rules) == 2


def test_a_gpu_that_cannot_be_seen_keeps_its_rule_and_gets_none():
    wanted = decided(about("GPU-0", "monitor/blind"), about("GPU-1", "xid/79"))
    assert (list(wanted.rules), wanted.kept) == (["outrider-gpu-1.n1.example"], {"outrider-gpu-0.n1.example"})


@pytest.mark.parametrize(("mode", "taint", "rules"), [(Mode.PAUSED, None, 0), (Mode.QUARANTINED, "quarantined", 1)])
def test_a_persons_wish_goes_first(mode, taint, rules):
    wanted = decided(about("GPU-1", "xid/79"), mode=mode)
    assert (wanted.taint, len(wanted.rules)) == (taint, rules)


def node(**allocatable: str) -> Node:
    return Node(metadata=ObjectMeta(name=NODE), status=NodeStatus(allocatable=allocatable))


def offered(pool=NODE, generation=1, driver="gpu.nvidia.com", key="uuid", uuid="GPU-0", name="gpu-0"):
    device = Device(name=name, attributes={key: DeviceAttribute(string=uuid), "index": DeviceAttribute()})
    spec = ResourceSliceSpec(
        driver=driver, pool=ResourcePool(name=pool, generation=generation), node_name=NODE, devices=[device]
    )
    return ResourceSlice(spec=spec)


@pytest.mark.parametrize("key", ["uuid", "gpu.nvidia.com/uuid", "parentUUID"])
def test_devices_are_found_by_their_uuid(key):
    assert devices_of([offered(key=key)], node()) == {"GPU-0": ["gpu-0"]}


def test_slices_of_other_drivers_pools_and_older_generations_do_not_count():
    slices = [offered(driver="net.example"), offered(pool="other"), offered(name="old"), offered(generation=2)]
    assert devices_of(slices, node()) == {"GPU-0": ["gpu-0"]}


@pytest.mark.parametrize("count", ["8", "bent"])
def test_where_a_device_plugin_offers_gpus_too_no_device_is_tainted(count):
    assert devices_of([offered()], node(**{"nvidia.com/gpu": count})) == {}
    assert devices_of([offered()], node(**{"nvidia.com/gpu": "0"})) != {}


def test_names_of_nodes_that_end_alike_give_different_rules():
    assert rule_for("a.b", "d", "x").metadata.name == "outrider-d.a.b"
    assert rule_for("b", "d", "x").metadata.name == "outrider-d.b"


def test_a_node_name_too_long_for_a_label_gets_a_digest():
    assert labels_of("n1")["outrider.dev/agent-node"] == "n1"
    long = labels_of("n" * 100)["outrider.dev/agent-node"]
    assert len(long) == 32
    assert long != labels_of("m" * 100)["outrider.dev/agent-node"]
