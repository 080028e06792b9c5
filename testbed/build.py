"""Build the pinned programs into the cache, each once per version and flags."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from testbed import locks, versions
from testbed.errors import MissingPrerequisiteError, TestbedError
from testbed.paths import cache_dir
from testbed.say import Say, step
from testbed.toolchain import MODULES, find_go
from testbed.versions import Build

_GOFLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
# The compiler collects garbage less often than by default: memory for time, some 1 GB more at the peak.
_GO_ENVIRONMENT = {"GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOGC": "400"}


def folder(build: Build) -> Path:
    """Cache folder of a build's programs: any change of module, version or flags gives another one."""
    digest = hashlib.sha256(repr((build, _GOFLAGS)).encode())
    for file in sorted((MODULES / build.module).iterdir()):
        digest.update(file.read_bytes())
    return cache_dir() / "bin" / f"{build.module}-{build.version}-{digest.hexdigest()[:12]}"


def program(name: str) -> Path:
    """Path of a built program.

    Raises:
        MissingPrerequisiteError: it has not been built yet.
    """
    pinned = next(b for b in (*versions.ALL, *versions.OPERATORS) if name in b.programs.values())
    path = folder(pinned) / name
    if path.exists():
        return path
    option = " --operators" if pinned in versions.OPERATORS else ""
    message = f"{name} is not built yet: run `python -m testbed build{option}`"
    raise MissingPrerequisiteError(message)


def build_all(builds: Iterable[Build], say: Say) -> None:
    """Build what the cache lacks, saying what is cached and how long the rest took.

    Raises:
        TestbedError: a build failed; the message ends with the compiler's words.
        MissingPrerequisiteError: no Go toolchain, or no C compiler where one is needed.
    """
    for build in builds:
        if not folder(build).exists():
            with locks.waiting(cache_dir() / "build.lock"):
                _build_unless_there(build, say)
        else:
            say(f"{_title(build)}: cached")


def _build_unless_there(build: Build, say: Say) -> None:
    """Another command may have built it while this one waited for the lock."""
    if folder(build).exists():
        say(f"{_title(build)}: built by another command")
        return
    with step(say, _title(build), "built"):
        _build(build, find_go(say))


def _title(build: Build) -> str:
    return f"{' '.join(build.programs.values())} {build.version}"


def _build(build: Build, go: Path) -> None:
    if build.cgo and not shutil.which("gcc"):
        message = "gcc is missing: install it with `apt-get install gcc libc6-dev`"
        raise MissingPrerequisiteError(message)
    target = folder(build)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    names = list(build.programs.values())
    output = partial / names[0] if len(names) == 1 else f"{partial}/"
    command = [go, "build", *_GOFLAGS, "-tags", build.tags, "-ldflags", build.ldflags, "-o", output, *build.packages]
    env = os.environ | _GO_ENVIRONMENT | {"CGO_ENABLED": str(int(build.cgo))}
    done = subprocess.run(command, cwd=MODULES / build.module, env=env, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        message = f"building {build.module} {build.version} failed:\n{done.stderr.strip()[-3000:]}"
        raise TestbedError(message)
    partial.rename(target)
