"""A pod's credentials: two files and two variables, read without the kubernetes library."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from outrider.kube.credentials import ServiceAccount
from outrider.kube.errors import NoCredentials, Unreachable
from outrider.kube.kinds import NODES
from outrider.kube.transport import session
from testbed import control_plane as control_planes
from testbed.certificates import Authority
from testbed.state import State

ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Authority(tmp_path)
    (tmp_path / "token").write_text("one\n")
    return tmp_path


async def test_the_token_is_read_again_after_a_minute(folder: Path) -> None:
    clock = Clock()
    account = ServiceAccount(ENVIRONMENT, folder, clock=clock)
    assert account.root == "https://10.96.0.1:443"
    (folder / "token").write_text("two\n")
    clock.now = 59
    assert await account.authorization() == "Bearer one"
    clock.now = 60
    assert await account.authorization() == "Bearer two"


async def test_a_token_that_is_gone_for_a_moment_is_an_outage_and_no_crash(folder: Path) -> None:
    clock = Clock()
    account = ServiceAccount(ENVIRONMENT, folder, clock=clock)
    (folder / "token").write_text("")
    clock.now = 60
    with pytest.raises(Unreachable, match="token is empty"):
        await account.authorization()
    (folder / "token").write_text("back")
    assert await account.authorization() == "Bearer back"


def test_an_ipv6_address_is_put_in_brackets(folder: Path) -> None:
    environment = ENVIRONMENT | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert ServiceAccount(environment, folder).root == "https://[fd00::1]:443"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_what_is_missing_or_bent_is_named(folder: Path, name: str, content: bytes | None) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(NoCredentials, match=str(folder)):
        ServiceAccount(ENVIRONMENT, folder)


def test_a_variable_that_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(NoCredentials, match="KUBERNETES_SERVICE_PORT"):
        ServiceAccount({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, folder)


def test_a_pod_never_loads_the_kubernetes_library() -> None:
    program = "import sys, outrider.kube.transport; print('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.control_plane
async def test_a_real_api_server_lets_a_service_account_in(control_plane: State, namespace: str, folder: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    with closing(control_planes.admin(control_plane)) as api:
        status, answer = api.call("POST", path, {"spec": {}})
    assert status == 201, answer
    (folder / "token").write_text(answer["status"]["token"])
    (folder / "ca.crt").write_bytes((control_planes.certificates(control_plane) / "ca.crt").read_bytes())
    host, port = control_plane.plan.host, str(control_plane.plan.port("kube-apiserver"))
    account = ServiceAccount({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, folder)
    async with session(account, "test") as client:
        with pytest.raises(Exception, match=f"system:serviceaccount:{namespace}:default"):
            await client.list(NODES)
