"""Builds the parts of sysfs, procfs and /dev that the NIC probe reads, laid out as the kernel lays them out."""

import shutil
from pathlib import Path

CX7 = "MT_0000000838"  # board ids as the firmware of ConnectX-7 cards gives them: 400G single port, 200G dual port
CX7_DUAL = "MT_0000000834"


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


class Host:
    """The root of a pretended host: sys, proc and dev below it."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        (self.sys / "class").mkdir(parents=True)
        self.route("eth0")
        self._number = 0

    def route(self, *netdevs: str) -> None:
        head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        rows = [f"{netdev}\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" for netdev in netdevs]
        self.proc.joinpath("1/net").mkdir(parents=True, exist_ok=True)
        self.proc.joinpath("1/net/route").write_text(head + "".join(rows))

    def add(self, name: str, *, bus: int = 0, function=0, layer="InfiniBand", board=CX7, numa=0, rate=400) -> "Host":
        self._number += 1
        bus = bus or self._number
        slot = self.sys / f"devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0"
        device = slot / f"0000:{bus:02x}:02.{function}"
        write(slot, max_link_width=16, max_link_speed="32.0 GT/s PCIe")
        write(device, max_link_width=16, max_link_speed="32.0 GT/s PCIe", numa_node=numa)
        write(device, current_link_width=16, current_link_speed="32.0 GT/s PCIe", vendor="0x15b3", device="0x1021")
        root = device / "infiniband" / name
        write(root, **({"board_id": board} if board else {}))
        (root / "device").symlink_to(device)
        self._link("infiniband", name, root)
        number = self._number - 1
        for kind, node in (("infiniband_verbs", f"uverbs{number}"), ("infiniband_mad", f"umad{number}")):
            if kind == "infiniband_mad" and layer != "InfiniBand":
                continue
            write(device / kind / node, ibdev=name)
            self._link(kind, node, device / kind / node)
            write(self.dev / "infiniband", **{node: ""})
        self.port(name, layer=layer, rate=rate)
        return self

    def _link(self, kind: str, name: str, target: Path) -> None:
        entry = self.sys / "class" / kind / name
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(target)

    def device(self, name: str) -> Path:
        return (self.sys / "class/infiniband" / name / "device").resolve()

    def folder(self, name: str, number: int = 1) -> Path:
        return self.sys / "class/infiniband" / name / "ports" / str(number)

    def port(self, name: str, number: int = 1, layer="InfiniBand", rate: float = 400) -> None:
        folder = self.folder(name, number)
        write(folder, state="4: ACTIVE", phys_state="5: LinkUp", rate=f"{rate:g} Gb/sec (4X NDR)", link_layer=layer)
        zero = ("symbol_error", "link_error_recovery", "link_downed", "port_xmit_data")
        write(folder / "counters", local_link_integrity_errors=0, excessive_buffer_overrun_errors=0)
        write(folder / "counters", **dict.fromkeys(zero, 0))
        write(folder / "hw_counters", rnr_nak_retry_err=0, roce_slow_restart=0)

    def set(self, name: str, number: int = 1, **files: object) -> None:
        write(self.folder(name, number), **files)

    def count(self, name: str, number: int = 1, kind: str = "counters", **counters: object) -> None:
        write(self.folder(name, number) / kind, **counters)

    def down(self, name: str) -> None:
        self.set(name, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")

    def up(self, name: str, rate: float = 400) -> None:
        self.set(name, state="4: ACTIVE", phys_state="5: LinkUp", rate=f"{rate:g} Gb/sec (4X NDR)")

    def netdev(self, name: str, netdev: str, **files: object) -> None:
        folder = self.device(name) / "net" / netdev
        write(folder, dev_port=0, carrier_changes=2, **files)
        self._link("net", netdev, folder)

    def below(self, upper: str, lower: str) -> None:
        """Make a network device the lower part of a bond or bridge."""
        folder = self.sys / "devices/virtual/net" / upper
        write(folder, dev_port=0)
        if not (self.sys / "class/net" / upper).exists():
            self._link("net", upper, folder)
        (folder / f"lower_{lower}").symlink_to(self.sys / "class/net" / lower)

    def remove(self, name: str) -> None:
        device = self.device(name)
        for kind in ("infiniband", "infiniband_verbs", "infiniband_mad"):
            for entry in (self.sys / "class" / kind).iterdir():
                if entry.resolve().is_relative_to(device):
                    entry.unlink()
        shutil.rmtree(device)


def hgx(root: Path) -> Host:
    """Eight InfiniBand adapters, and two of another board: storage, and management that carries the default route."""
    host = Host(root)
    for number in range(8):
        host.add(f"mlx5_{number}", numa=number // 4)
    host.add("mlx5_8", board=CX7_DUAL, layer="Ethernet", rate=200)
    host.add("mlx5_9", board=CX7_DUAL, layer="Ethernet", rate=200)
    host.netdev("mlx5_9", "eth0")
    return host
