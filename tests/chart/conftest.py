"""Renders the chart with the real helm."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import build, versions
from testbed.demo.release import CHART, NAMESPACE, RELEASE
from testbed.say import to_stderr

Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> Path:
    build.build_all(versions.TOOLS, to_stderr)
    return build.program("helm")


@pytest.fixture(scope="session")
def run_helm(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    home = str(tmp_path_factory.mktemp("helm"))
    env = os.environ | {"HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([helm, *arguments], env=env, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def render(run_helm: Callable[..., subprocess.CompletedProcess[str]]) -> Render:
    def objects(*arguments: str) -> list[dict[str, Any]]:
        done = run_helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", "v1.37.2", *arguments)
        assert done.returncode == 0, done.stderr
        return [doc for doc in yaml.safe_load_all(done.stdout) if doc]

    return objects
