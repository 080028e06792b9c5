"""What a testbed runs beside the control plane: bridge, DNS, trace collector."""

import importlib.util
import sys

from testbed import control_plane, kubeconfig, network, processes
from testbed.build import program
from testbed.certificates import Authority
from testbed.paths import ROOT
from testbed.state import State

_COREFILE = """\
.:53 {{
    bind {host}
    errors
    health 127.0.0.1:{port}
    kubernetes cluster.local {{
        kubeconfig {kubeconfig} testbed
        ttl 1
    }}
}}
"""


def prepare_host(state: State) -> None:
    """Make the folders and, as root, the bridge that everything else listens on."""
    shared = state.bulk / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    (state.folder / "shared").symlink_to(shared)
    if ROOT:
        network.add_bridge(state.plan)
    start_collector(state)


def start_for_nodes(state: State) -> None:
    """Start what only real pods use: CoreDNS on the bridge."""
    if processes.find(state, "coredns") is None:
        config = state.folder / "kubeconfigs" / "coredns"
        authority = Authority(control_plane.certificates(state))
        kubeconfig.write(config, state.plan.api_url, authority, "coredns", "system:masters")
        corefile = state.folder / "Corefile"
        port = state.plan.port("coredns")
        corefile.write_text(_COREFILE.format(host=state.plan.host, kubeconfig=config, port=port))
        processes.spawn(state, "coredns", [program("coredns"), "-conf", corefile])


def start_collector(state: State) -> None:
    """Start the trace collector, which appends every span to traces.jsonl."""
    if importlib.util.find_spec("testbed.collector") is None:
        return
    argv = ["--listen", f"{state.plan.host}:{state.plan.otlp_port}", "--out", state.folder / "traces.jsonl"]
    processes.spawn(state, "collector", [sys.executable, "-m", "testbed.collector", *argv])


def otlp_endpoint(state: State) -> str:
    """Where components send their traces."""
    return f"http://{state.plan.host}:{state.plan.otlp_port}"
