"""Addresses, ports and names of one testbed, all following from its slot, so that two never meet."""

import msgspec

SLOTS = 40
"""How many testbeds can run side by side on one machine."""

NODES_MAX = 200
_PORT_BASE = 21000
_PORTS_EACH = 20
_OTLP_PORT = 4318


class Plan(msgspec.Struct, frozen=True):
    """Everything that must differ between testbeds: slot n owns 10.(210+n).0.0/16 and twenty ports."""

    slot: int
    bridged: bool
    """Real nodes reach the control plane over a bridge; without root it listens on loopback."""

    def port(self, service: str) -> int:
        """Port of a control-plane service on `host`, or on loopback."""
        return _PORT_BASE + self.slot * _PORTS_EACH + PORTS.index(service)

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of this testbed but those on its own bridge address."""
        return tuple(map(self.port, PORTS))

    @property
    def _prefix(self) -> str:
        return f"10.{210 + self.slot}"

    @property
    def network(self) -> str:
        """The /16 that holds nodes, pods and services."""
        return f"{self._prefix}.0.0/16"

    @property
    def host(self) -> str:
        """Address of the control plane, DNS and trace collector."""
        return f"{self._prefix}.0.1" if self.bridged else "127.0.0.1"

    @property
    def services(self) -> str:
        """Cluster IP range; its first address is kubernetes.default."""
        return f"{self._prefix}.240.0/20"

    @property
    def first_service(self) -> str:
        """Cluster IP of kubernetes.default."""
        return f"{self._prefix}.240.1"

    @property
    def bridge(self) -> str:
        """Name of the host's bridge."""
        return f"outrider{self.slot}"

    def node_ip(self, index: int) -> str:
        """Address of real node gpu-INDEX."""
        return f"{self._prefix}.0.{10 + index}"

    def operator_ip(self, index: int) -> str:
        """Address of a controller of training jobs, of which there can be eight."""
        return f"{self._prefix}.0.{2 + index}"

    def mac(self, index: int | None = None) -> str:
        """Hardware address of a node, or of the bridge; fixed, since neighbours remember it for a minute.

        Left to the kernel, a bridge changes its address as cables come and go, and a node with each boot.
        """
        low = 0xFFFF if index is None else index
        return f"02:4f:52:{self.slot:02x}:{low >> 8:02x}:{low & 0xFF:02x}"

    def pods(self, index: int) -> str:
        """Pod subnet of real node gpu-INDEX."""
        return f"{self._prefix}.{1 + index}.0/24"

    def link(self, index: int) -> str:
        """Host end of a node's cable; Linux allows 15 characters."""
        return f"or{self.slot}n{index}"

    def netns(self, index: int) -> str:
        """Name of a node's network namespace under /run/netns."""
        return f"outrider{self.slot}-gpu-{index}"

    def operator_netns(self, index: int) -> str:
        """Name of the network namespace of a controller of training jobs."""
        return f"outrider{self.slot}-operator-{index}"

    def operator_link(self, index: int) -> str:
        """Host end of that namespace's cable."""
        return f"or{self.slot}no{index}"

    @property
    def otlp_port(self) -> int:
        """Port of the trace collector: OTLP's own on a bridge of our own, a distinct one on loopback."""
        return _OTLP_PORT if self.bridged else self.port("otlp")

    @property
    def api_url(self) -> str:
        """URL of the API server."""
        return f"https://{self.host}:{self.port('kube-apiserver')}"


PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "coredns", "otlp")
