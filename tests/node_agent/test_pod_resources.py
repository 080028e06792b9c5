"""What the kubelet's answer says about who holds which GPU."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protobuf import claim, devices, field, pod

from node_agent.readings.pod_resources import BadMessage, Holding, holders, read_holdings

UUID = "GPU-8f2c1d90-3e5a-4b17-9c2e-5da9abb51763"


def held(*parts: bytes) -> dict[str, str]:
    return holders(read_holdings(pod("default", "train-0", *parts)), {"default/train-0": "uid-0"})


@pytest.mark.parametrize(
    ("part", "gpu"),
    [
        (devices("nvidia.com/gpu", UUID), UUID),
        (devices("nvidia.com/gpu.shared", f"{UUID}::3"), UUID),
        (devices("nvidia.com/mig-1g.10gb", "MIG-bbbb"), "MIG-bbbb"),
        (devices("nvidia.com/gpu", f"MIG-{UUID}/1/0"), UUID),
        (claim("c", "gpu.nvidia.com", "node-1", "gpu-3"), "gpu.nvidia.com/node-1/gpu-3"),
        (claim("c", "gpu.nvidia.com", "node-1", "gpu-3", f"k8s.gpu.nvidia.com/device={UUID}"), UUID),
    ],
)
def test_each_way_to_hold_a_gpu_names_it(part, gpu):
    assert held(part) == {gpu: "uid-0"}


def test_all_containers_of_a_pod_count_and_other_devices_do_not():
    parts = [
        devices("nvidia.com/gpu", "GPU-a", "GPU-b"),
        devices("nvidia.com/gpu", "GPU-c"),
        devices("rdma/hca", "mlx5_0"),
        claim("nic", "dra.example.com", "p", "d"),
    ]
    assert set(held(*parts)) == {"GPU-a", "GPU-b", "GPU-c"}


def test_pods_without_gpus_are_left_out():
    assert read_holdings(pod("default", "web", devices("rdma/hca", "x")) + pod("default", "idle")) == []


def test_of_pods_that_share_a_gpu_the_first_is_told_and_unknown_pods_are_not():
    holdings = [Holding(namespace="a", pod=name, devices=["GPU-a"]) for name in ("z", "b", "unknown", "a-unknown")]
    assert holders(holdings, {"a/z": "uid-z", "a/b": "uid-b"}) == {"GPU-a": "uid-b"}


def test_fields_of_newer_kubelets_are_passed_over():
    newer = field(9, 1) + field(10, "x") + bytes([11 << 3 | 1]) + bytes(8) + bytes([12 << 3 | 5]) + bytes(4)
    assert read_holdings(newer + pod("n", "p", devices("nvidia.com/gpu", "GPU-a") + newer) + newer)[0].pod == "p"


@pytest.mark.parametrize(
    "message",
    [b"\x0a", b"\x0a\x05abc", b"\x0b", b"\xff" * 20, field(1, 3), field(1, field(3, 1)), field(1, b"\x0a\xff")],
)
def test_a_broken_message_is_an_error_of_its_own(message):
    with pytest.raises(BadMessage):
        read_holdings(message)


@given(st.binary(max_size=400))
def test_no_bytes_lead_to_another_error(message):
    with contextlib.suppress(BadMessage):
        read_holdings(message)


@given(st.integers(0, 300), st.binary(min_size=1, max_size=3))
def test_a_message_with_a_few_wrong_bytes_leads_to_no_other_error(place, wrong):
    whole = pod("default", "train-0", devices("nvidia.com/gpu", UUID), claim("c", "gpu.nvidia.com", "p", "d")) * 2
    bent = bytearray(whole)
    bent[place % len(whole) : place % len(whole) + len(wrong)] = wrong
    with contextlib.suppress(BadMessage):
        holders(read_holdings(bytes(bent)), {"default/train-0": "uid"})
