"""The chart in a testbed, through helm as users install it."""

import os
import subprocess
from pathlib import Path

from testbed import build, images, versions
from testbed.errors import TestbedError
from testbed.say import Say, silent, step
from testbed.state import State

CHART = Path(__file__).parents[2] / "charts" / "outrider"
VALUES = Path(__file__).with_name("values.yaml")
RELEASE = "outrider"
NAMESPACE = "outrider-system"


def install(state: State, say: Say, *settings: str) -> None:
    """Install the chart, or upgrade it; returns once every part is ready.

    ``settings`` are helm's own, such as "remediation.mode=observe".

    Raises:
        TestbedError: helm failed; the message ends with its words.
    """
    telemetry = f"telemetry.otlpEndpoint={otlp_endpoint(state)}"
    chosen = [part for setting in (telemetry, *settings) for part in ("--set", setting)]
    build.build_all(versions.TOOLS, say)
    with step(say, "chart outrider", "ready"):
        helm(
            state, "upgrade", RELEASE, str(CHART), "--install", "--namespace", NAMESPACE, "--create-namespace",
            "--values", str(VALUES), *chosen, "--wait", "--timeout", "5m",
        )  # fmt: skip
        _restart_old_code(state)


def _restart_old_code(state: State) -> None:
    """Restart the components where their image changed under the same tag since the last time, as a checkout does."""
    present, known = _image(), state.folder / "installed-image"
    if known.exists() and known.read_text() != present:
        kubectl(state, "rollout", "restart", "deployment,daemonset", "--namespace", NAMESPACE)
        for kind in ("deployment", "daemonset"):
            kubectl(state, "rollout", "status", kind, "--namespace", NAMESPACE, "--timeout", "5m")
    known.write_text(present)


def _image() -> str:
    return images.archives(silent)[-1].name


def uninstall(state: State) -> None:
    """Uninstall the chart and wait until its objects are gone.

    Raises:
        TestbedError: helm failed; the message ends with its words.
    """
    (state.folder / "installed-image").unlink(missing_ok=True)
    helm(state, "uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "5m")


def otlp_endpoint(state: State) -> str:
    """URL of the testbed's trace collector, as pods reach it."""
    return f"http://{state.plan.host}:4318"


def helm(state: State, *arguments: str) -> str:
    """Run helm against the testbed and return what it printed.

    Raises:
        TestbedError: it failed; the message ends with its words.
    """
    return run_program(state, "helm", *arguments)


def kubectl(state: State, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as the testbed's administrator and return what it printed.

    Raises:
        TestbedError: it failed; the message ends with its words.
    """
    return run_program(state, "kubectl", *arguments, stdin=stdin)


def run_program(state: State, name: str, *arguments: str, stdin: str | None = None) -> str:
    """Run one of the testbed's programs with its kubeconfig.

    Raises:
        TestbedError: it failed; the message ends with its words.
    """
    folder = state.folder / "helm"
    env = os.environ | {
        "KUBECONFIG": str(state.folder / "kubeconfig"),
        "HELM_CACHE_HOME": str(folder), "HELM_CONFIG_HOME": str(folder), "HELM_DATA_HOME": str(folder),
    }  # fmt: skip
    done = subprocess.run(
        [build.program(name), *arguments], env=env, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = f"{name} {' '.join(arguments[:4])} failed: {(done.stderr or done.stdout).strip()[-2000:]}"
        raise TestbedError(message)
    return done.stdout
