"""Environment of a training container: what is absent is added, two values are extended, nothing is overridden.

Extended are PYTHONPATH and PET_RDZV_CONF: ours comes first and the user's text stays unchanged at the end, where it
wins. Presence counts, whatever the source: a name from valueFrom is set, and envFrom may hold any name.
Values and the reasons for them: torchrun's defaults let a replaced rank hang, and a lost node ends the whole job
(TORCH_DISABLE_SHARE_RDZV_TCP_STORE and PET_MAX_RESTARTS); recovery waits for keep-alive and last call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from outrider.api.names import INPOD_DIR
from outrider.api.trainingpolicy import Elastic
from webhook.launcher import Kind, Launch, inspect
from webhook.view import ContainerView, EnvVar

PYTHONPATH: Final = "PYTHONPATH"
RUNTIME: Final = f"{INPOD_DIR}/py"
_RDZV_CONF: Final = "PET_RDZV_CONF"
_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
_STATIC: Final = "static"
_FIELDS: Final = {
    "OUTRIDER_POD_UID": "metadata.uid",
    "OUTRIDER_POD_NAME": "metadata.name",
    "OUTRIDER_NODE": "spec.nodeName",
}


@dataclass(frozen=True)
class Changes:
    """``added`` are entries for the end of env, ``replaced`` new values by index, ``warnings`` for the user."""

    added: list[dict[str, Any]]
    replaced: dict[int, str]
    warnings: list[str]


@dataclass(frozen=True)
class Facts:
    """What the pod as a whole contributes. ``job_uid`` is empty for a pod without a job."""

    traceparent: str
    job_uid: str
    elastic: Elastic


def environment(container: ContainerView, facts: Facts) -> Changes:
    """Return the changes to one container's env; none for one that has had them."""
    return _Env(container, facts).changes()


class _Env:
    def __init__(self, container: ContainerView, facts: Facts) -> None:
        self._container = container
        self._facts = facts
        self._launch = inspect(container.argv)
        # The last of several entries of one name is the one that counts.
        self._last = {entry.name: (index, entry) for index, entry in enumerate(container.env or [])}
        self._text = _texts(container)
        self._changes = Changes([], {}, [])

    def changes(self) -> Changes:
        self._own()
        if self._container.env_from:
            self._warn("envFrom may set PYTHONPATH or PET_*, so neither is added; name them in env to get both")
            return self._changes
        self._python_path()
        if not self._is_static():
            self._torchrun()
        return self._changes

    def _own(self) -> None:
        self._literal("OUTRIDER_DIR", INPOD_DIR)
        for name, field in _FIELDS.items():
            self._add(name, {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}})
        self._literal("TRACEPARENT", self._facts.traceparent)

    def _python_path(self) -> None:
        if self._launch.isolated:
            self._warn("python -I, -E or -S ignores PYTHONPATH: no step beacon, no checkpoint on request")
        present = self._last.get(PYTHONPATH)
        if present is None:
            self._literal(PYTHONPATH, RUNTIME)
        elif present[1].value_from is not None:
            self._warn("PYTHONPATH comes from valueFrom and stays: no step beacon, no checkpoint on request")
        else:
            self._extend(present, RUNTIME, ":")

    def _torchrun(self) -> None:
        if self._launch.kind is Kind.PYTHON:
            return
        self._literal("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
        self._rendezvous_conf()
        if self._is_dynamic() and "max-restarts" not in self._launch.options:
            self._literal("PET_MAX_RESTARTS", str(self._facts.elastic.max_restarts))
        if self._facts.job_uid and "rdzv-id" not in self._launch.options:
            self._literal("PET_RDZV_ID", self._facts.job_uid)

    def _rendezvous_conf(self) -> None:
        wanted = _conf(self._facts.elastic)
        present = self._last.get(_RDZV_CONF)
        if "rdzv-conf" in self._launch.options:
            self._warn(f"--rdzv-conf on the command line hides {_RDZV_CONF}; faster recovery: add {_joined(wanted)}")
        elif present is None:
            self._literal(_RDZV_CONF, _joined(wanted))
        elif present[1].value_from is None:
            have = {pair.partition("=")[0].strip() for pair in (present[1].value or "").split(",")}
            missing = {key: value for key, value in wanted.items() if key not in have}
            if missing:
                self._extend(present, _joined(missing), ",")

    def _is_static(self) -> bool:
        """Whether torchrun surely meets its peers without a rendezvous store: its settings would be inert."""
        backend = self._backend()
        return backend == _STATIC or (backend == "" and self._launch.kind is Kind.TORCHRUN)

    def _is_dynamic(self) -> bool:
        return self._backend() not in ("", _STATIC, None)

    def _backend(self) -> str | None:
        """Return the rendezvous backend, empty where it is not set, None where its value can't be seen."""
        if "rdzv-backend" in self._launch.options:
            return self._launch.options["rdzv-backend"]
        if "standalone" in self._launch.options:
            return "c10d"
        if _RDZV_BACKEND in self._launch.assigned:
            return None
        _, entry = self._last.get(_RDZV_BACKEND, (0, EnvVar(name=_RDZV_BACKEND, value="")))
        return None if entry.value_from is not None else entry.value or ""

    def _literal(self, name: str, value: str) -> None:
        self._add(name, {"value": value})

    def _add(self, name: str, source: Mapping[str, object]) -> None:
        if name in self._last or name in self._launch.assigned:
            return
        if f"$({name})" in self._text:
            self._warn(f"$({name}) is literal text in this container; {name} is not set, so that it stays so")
            return
        self._changes.added.append({"name": name, **source})

    def _extend(self, present: tuple[int, EnvVar], ours: str, separator: str) -> None:
        index, entry = present
        theirs = entry.value or ""
        if theirs.split(separator)[0] != ours:
            self._changes.replaced[index] = f"{ours}{separator}{theirs}" if theirs else ours

    def _warn(self, text: str) -> None:
        self._changes.warnings.append(f"container {self._container.name}: {text}")


def _conf(elastic: Elastic) -> dict[str, str]:
    return {
        "keep_alive_interval": str(elastic.keep_alive_interval_seconds),
        "keep_alive_max_attempt": str(elastic.keep_alive_max_attempt),
        "last_call_timeout": str(elastic.last_call_timeout_seconds),
    }


def _joined(conf: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in conf.items())


def _texts(container: ContainerView) -> str:
    """Return all text in which the kubelet expands $(NAME)."""
    return "\n".join([*container.argv, *(entry.value or "" for entry in container.env or [])])


__all__ = ["PYTHONPATH", "RUNTIME", "Changes", "Facts", "Launch", "environment"]
