"""Who is told of what, and that each change is told once."""

import msgspec
import pytest

from node_agent.inventory import GPURecord
from node_agent.judging import Rules, conclude
from node_agent.memory import Memory
from node_agent.publishing.telling import affected, messages, state_of
from outrider.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from outrider.api.gpunode import SubjectKind
from outrider.api.meta import ObjectMeta
from outrider.api.names import JOB_UID_LABEL
from outrider.health.catalogue import load
from outrider.health.findings import Evidence

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
INVENTORY = [GPURecord(index=index, uuid=f"GPU-{index}") for index in range(8)]


def about(uuid: str, code: str) -> Evidence:
    subject = SubjectKind.GPU if uuid else SubjectKind.NODE
    return Evidence(code=code, subject=subject, subject_id=uuid, first_seen=NOW, last_seen=NOW, source="test")


class Node:
    """What users of one node have been told."""

    def __init__(self):
        self.memory = Memory(inventory=INVENTORY)

    def tell(self, *findings: Evidence):
        memory = msgspec.structs.replace(self.memory, findings=list(findings))
        judgement = conclude(memory, NOW + 60, RULES)
        told = messages(memory, judgement, RULES.catalogue, "n1")
        self.memory = msgspec.structs.replace(memory, announced=state_of(judgement))
        return [(message.gpu, message.sick) for message in told]


def test_each_gpu_is_told_of_once_although_the_nodes_verdict_is_the_same():
    node = Node()
    assert node.tell(about("GPU-3", "xid/79")) == [("GPU-3", True)]
    assert node.tell(about("GPU-3", "xid/79")) == []
    assert node.tell(about("GPU-3", "xid/79"), about("GPU-5", "xid/79")) == [("GPU-5", True)]
    assert node.tell(about("GPU-5", "xid/79")) == [("GPU-3", False)]
    assert node.tell() == [("GPU-5", False)]


def test_a_fault_of_the_node_is_told_of_the_node():
    node = Node()
    assert node.tell(about("", "sxid/10003")) == [("", True)]
    assert node.tell() == [("", False)]


def test_what_is_not_grave_is_not_told():
    assert Node().tell(about("GPU-3", "xid/94")) == []


def test_the_words_name_node_gpu_code_and_what_to_do():
    memory = Memory(inventory=INVENTORY, findings=[about("GPU-3", "xid/79")])
    (message,) = messages(memory, conclude(memory, NOW + 60, RULES), RULES.catalogue, "n1")
    assert message.text.startswith("node n1: GPU 3 (GPU-3): ")
    assert "(xid/79). Next: " in message.text


def pod(name: str, gpus: str = "", job: str = "", phase: str = "Running") -> Pod:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="n", uid=name, labels={JOB_UID_LABEL: job} if job else {}),
        spec=PodSpec(containers=[Container(resources=ResourceRequirements(limits=limits))]),
        status=PodStatus(phase=phase),
    )


PODS = [pod("system"), pod("worker", job="j"), pod("notebook", gpus="1"), pod("done", gpus="1", phase="Succeeded")]


@pytest.mark.parametrize(
    ("gpu", "holders", "names"),
    [
        ("GPU-1", {"GPU-1": "notebook", "GPU-2": "worker"}, ["notebook"]),
        ("GPU-3", {"GPU-1": "notebook"}, []),
        ("GPU-1", {}, []),
        ("GPU-1", None, ["worker", "notebook"]),
        ("", {"GPU-1": "notebook"}, ["worker", "notebook"]),
    ],
)
def test_only_pods_under_the_sick_hardware_are_told(gpu, holders, names):
    assert [one.metadata.name for one in affected(PODS, gpu, holders)] == names
