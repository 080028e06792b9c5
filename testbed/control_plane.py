"""etcd, API server, controller manager and scheduler as processes of this machine."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from testbed import kubeconfig, processes
from testbed.api import Api
from testbed.build import program
from testbed.certificates import Authority
from testbed.errors import TestbedError
from testbed.say import Say, step
from testbed.state import State

_READY_S = 60.0
_POLL_S = 0.05
_MASTERS = "system:masters"
_STORES = ("etcd", "kube-apiserver")
_CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
PROGRAMS = _STORES + _CONTROLLERS


def up(state: State, say: Say) -> None:
    """Start the control plane and wait until it serves, schedules and has made the default service account.

    Raises:
        TestbedError: a process died or was not ready within a minute.
    """
    with step(say, "control plane", "ready"):
        write_identities(state)
        for name in _STORES:
            start(state, name)
        wait_api(state, _STORES)
        # These end if they find the API server without its own roles.
        for name in _CONTROLLERS:
            start(state, name)
        wait_controllers(state)


def start(state: State, name: str) -> None:
    """Start one program of the control plane, for instance after a test stopped it."""
    if processes.find(state, name) is None:
        processes.spawn(state, name, _COMMANDS[name](state))


def write_identities(state: State) -> Authority:
    """Issue the certificates and kubeconfigs of the control plane and of the administrator."""
    authority = Authority(certificates(state))
    plan = state.plan
    inside = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    hosts = ["127.0.0.1", "localhost", plan.host, plan.first_service, *inside]
    authority.server("kube-apiserver", hosts)
    authority.client("kube-apiserver-kubelet", "kube-apiserver", _MASTERS)
    authority.signing_key("service-accounts")
    kubeconfig.write(state.folder / "kubeconfig", plan.api_url, authority, "admin", _MASTERS)
    for user in _CONTROLLERS:
        authority.server(user, ["127.0.0.1", "localhost"])
        kubeconfig.write(_own_config(state, user), plan.api_url, authority, f"system:{user}")
    return authority


def certificates(state: State) -> Path:
    """Folder of the testbed's certificates."""
    return state.folder / "certificates"


def admin(state: State) -> Api:
    """API client of the administrator."""
    return Api(state.plan.host, state.plan.port("kube-apiserver"), certificates(state))


def is_ready(state: State) -> bool:
    """Whether the API server serves."""
    with closing(admin(state)) as api:
        return api.is_ready()


def wait_api(state: State, needed: Sequence[str] = PROGRAMS) -> None:
    """Wait until the API server serves.

    Raises:
        TestbedError: one of the needed programs died, or a minute passed.
    """
    with closing(admin(state)) as api:
        _wait(state, "the API server", api.is_ready, needed)


def wait_controllers(state: State) -> None:
    """Wait for what the controllers make in a new cluster.

    Raises:
        TestbedError: a program died, or a minute passed.
    """
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    with closing(admin(state)) as api:
        _wait(state, "the default service account", lambda: api.call("GET", account)[0] == 200, PROGRAMS)


def _wait(state: State, what: str, is_done: Callable[[], bool], needed: Sequence[str]) -> None:
    deadline = time.monotonic() + _READY_S
    while not is_done():
        for name in needed:
            processes.require_running(state, name)
        if time.monotonic() > deadline:
            message = f"{what} was not ready within {_READY_S:.0f} s; look into {state.folder / 'logs'}"
            raise TestbedError(message)
        time.sleep(_POLL_S)


def _own_config(state: State, user: str) -> Path:
    return state.folder / "kubeconfigs" / user


def _etcd(state: State) -> list[object]:
    plan = state.plan
    client, peer = (f"http://127.0.0.1:{plan.port(p)}" for p in ("etcd", "etcd-peer"))
    return [
        program("etcd"),
        f"--data-dir={state.bulk / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _apiserver(state: State) -> list[object]:
    plan, keys = state.plan, certificates(state)
    return [
        program("kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plan.port('etcd')}",
        f"--bind-address={plan.host}",
        f"--advertise-address={plan.host}",
        f"--secure-port={plan.port('kube-apiserver')}",
        f"--tls-cert-file={keys / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={keys / 'kube-apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys / 'service-accounts.key'}",
        f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
        f"--service-cluster-ip-range={plan.services}",
        # Webhook calls go to endpoint addresses: this host has no kube-proxy.
        "--enable-aggregator-routing",
        # Without it logs and exec look the node's name up in DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={keys / 'kube-apiserver-kubelet.crt'}",
        f"--kubelet-client-key={keys / 'kube-apiserver-kubelet.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        *(() if plan.bridged else ("--endpoint-reconciler-type=none",)),
    ]


def _controller_manager(state: State) -> list[object]:
    keys = certificates(state)
    return [
        *_client_of_api(state, "kube-controller-manager"),
        "--use-service-account-credentials",
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--service-account-private-key-file={keys / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]


def _client_of_api(state: State, name: str) -> list[object]:
    config, keys = _own_config(state, name), certificates(state)
    return [
        program(name),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={state.plan.port(name)}",
        f"--tls-cert-file={keys / f'{name}.crt'}",
        f"--tls-private-key-file={keys / f'{name}.key'}",
        "--leader-elect=false",
        # The default of 50 requests a second throttles the client instead of measuring the scheduler.
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
    ]


_COMMANDS: dict[str, Callable[[State], list[object]]] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": lambda state: _client_of_api(state, "kube-scheduler"),
}
