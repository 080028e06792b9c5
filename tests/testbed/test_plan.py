"""Two testbeds never meet: not in addresses, ports or names."""

import ipaddress
import itertools

from hypothesis import given
from hypothesis import strategies as st

from testbed.plan import NODES_MAX, SLOTS, Plan

slots = st.integers(0, SLOTS - 1)
indices = st.integers(0, NODES_MAX - 1)


def test_no_two_slots_share_a_network_or_a_port() -> None:
    plans = [Plan(slot, bridged=True) for slot in range(SLOTS)]
    for one, other in itertools.combinations(plans, 2):
        assert not ipaddress.ip_network(one.network).overlaps(ipaddress.ip_network(other.network))
        assert not set(one.ports) & set(other.ports)
        assert one.bridge != other.bridge


@given(slots, indices, indices)
def test_nodes_of_one_testbed_share_no_address_and_no_pod_subnet(slot: int, one: int, other: int) -> None:
    plan = Plan(slot, bridged=True)
    pods, services = ipaddress.ip_network(plan.pods(one)), ipaddress.ip_network(plan.services)
    assert not pods.overlaps(services)
    assert ipaddress.ip_address(plan.node_ip(one)) not in pods
    if one != other:
        assert not pods.overlaps(ipaddress.ip_network(plan.pods(other)))
        assert plan.node_ip(one) != plan.node_ip(other)
        assert plan.mac(one) != plan.mac(other) != plan.mac()


@given(slots, indices)
def test_link_names_fit_into_what_linux_allows(slot: int, index: int) -> None:
    plan = Plan(slot, bridged=True)
    assert len(plan.link(index)) <= 15
    assert len(plan.bridge) <= 15
