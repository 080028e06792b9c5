"""Install, start and stop controllers of training jobs."""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from testbed import control_plane, kubeconfig, network, processes
from testbed.api import Api
from testbed.build import build_all, program
from testbed.certificates import Authority
from testbed.errors import MissingPrerequisiteError, TestbedError
from testbed.operators import manifests
from testbed.operators.catalogue import CATALOGUE, Operator, operator
from testbed.paths import ROOT
from testbed.say import Say, silent, step
from testbed.state import State
from testbed.versions import OPERATORS

_READY_S: Final = 90.0
_AT_ONCE: Final = 3
_OWN_TMP: Final = 'mount --bind "$0" /tmp && exec "$@"'  # their certificates' path is fixed and below /tmp


@contextlib.contextmanager
def running(state: State, *names: str, say: Say = silent) -> Iterator[None]:
    """Controllers for the length of a with block; their resources stay installed until the testbed goes.

    Raises:
        MissingPrerequisiteError: not root.
        TestbedError: one did not start; the message ends with its last words.
    """
    try:
        start(state, *names, say=say)
        yield
    finally:
        stop(state, *names)


def start(state: State, *names: str, say: Say = silent) -> None:
    """Build, install and start controllers unless they run, and wait until they and their webhooks answer.

    Raises:
        MissingPrerequisiteError: not root.
        TestbedError: one did not start; the message ends with its last words.
    """
    if not ROOT:
        raise MissingPrerequisiteError("controllers of training jobs need root: each has a network namespace (sudo)")
    wanted = [one for one in map(operator, names) if processes.find(state, one.name) is None]
    build_all([build for build in OPERATORS if build.module in {one.name for one in wanted}], say)
    with step(say, ", ".join(one.name for one in wanted), "ready"):
        _start(state, wanted)


def _start(state: State, wanted: Sequence[Operator]) -> None:
    """Install all before any runs: Trainer ends where it finds no JobSets. Side by side, since each waits a lot."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        installed = list(pool.map(lambda one: _install(state, one), wanted))
        for done in [pool.submit(_launch, state, *each) for each in zip(wanted, installed, strict=True)]:
            done.result()


def stop(state: State, *names: str) -> None:
    """Stop controllers and remove their network namespaces."""
    for name in names:
        processes.stop(state, name)
        network.remove_operator(state.plan, CATALOGUE.index(operator(name)))


def _install(state: State, one: Operator) -> list[manifests.Object]:
    """Apply its manifests; return them as they are in its module."""
    objects = manifests.read(one, one.bases)
    address = state.plan.operator_ip(CATALOGUE.index(one))
    manifests.apply(state, manifests.adapted(one, objects, address))
    return objects


def _launch(state: State, one: Operator, objects: Sequence[manifests.Object]) -> None:
    """Start it, and wait until it works; its certificates come first, since it looks for them ever more rarely."""
    network.add_operator(state.plan, CATALOGUE.index(one))
    config = _identity(state, _folder(state, one) / "kubeconfig", *manifests.account(objects))
    processes.spawn(state, one.name, _command(state, one), {"KUBECONFIG": str(config)})
    if secret := manifests.certificate_secret(objects):
        with contextlib.closing(control_plane.admin(state)) as api:
            _until(state, one, lambda: _mount(api, secret, _folder(state, one)))
    url = f"http://{state.plan.operator_ip(CATALOGUE.index(one))}{one.probe}"
    _until(state, one, lambda: _answers(url))
    if one.later:
        manifests.apply(state, manifests.read(one, one.later))


def _identity(state: State, path: Path, namespace: str, account: str) -> Path:
    authority = Authority(control_plane.certificates(state))
    with contextlib.closing(control_plane.admin(state)) as api:
        token = manifests.token(api, namespace, account)
    return kubeconfig.write_token(path, state.plan.api_url, authority, account, token)


def _folder(state: State, one: Operator) -> Path:
    """Kubeconfig, kustomization and the operator's own /tmp."""
    scratch = state.folder / "operators" / one.name
    (scratch / "tmp").mkdir(parents=True, exist_ok=True)
    return scratch


def _command(state: State, one: Operator) -> list[object]:
    scratch, netns = _folder(state, one), state.plan.operator_netns(CATALOGUE.index(one))
    arguments = list(one.arguments)
    if one.config:
        file = scratch / "config.json"
        file.write_text(json.dumps(one.config))
        arguments.append(f"--config={file}")
    apart = ["nsenter", f"--net=/run/netns/{netns}", "unshare", "--mount", "sh", "-c", _OWN_TMP, scratch / "tmp"]
    return [*apart, program(one.program), *arguments]


def _until(state: State, one: Operator, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_S
    while not done():
        processes.require_running(state, one.name)
        if time.monotonic() > deadline:
            words = processes.tail(state, one.name)
            raise TestbedError(f"{one.name} was not ready within {_READY_S:.0f} s; its last lines:\n{words}")
        time.sleep(0.1)


def _mount(api: Api, secret: tuple[str, str], scratch: Path) -> bool:
    """Write the Secret's files where a kubelet would mount them; False: there are none yet."""
    files = manifests.certificates(api, *secret)
    into = scratch / manifests.CERTIFICATES.removeprefix("/")
    into.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, reverse=True):  # the key is there when the certificate is looked for
        (into / name).write_bytes(files[name])
    return bool(files)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - an address of the testbed's own
            return True
    except (urllib.error.URLError, OSError):
        return False
