"""What KWOK does with pods: Running at once, gone at once when deleted, and those of batch Jobs done within a second.

This is what it does by itself, but for `ENDLESS`: training is not over within a second.
"""

import json
from typing import Any, Final

ENDLESS: Final = "testbed.outrider.dev/endless"
"""Annotation of pods of a batch Job that run until somebody deletes them."""

_ALIVE: Final = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

_RUNNING: Final = """\
{{ $now := Now | Quote }}
phase: Running
startTime: {{ $now }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $shared := or .spec.hostNetwork false }}
podIP: {{ PodIPWith .spec.nodeName $shared .metadata.uid .metadata.name .metadata.namespace | Quote }}
conditions:
{{ range list "Initialized" "Ready" "ContainersReady" }}
- {type: {{ . }}, status: "True", lastTransitionTime: {{ $now }}}
{{ end }}
{{ range .spec.readinessGates }}
- {type: {{ .conditionType | Quote }}, status: "True", lastTransitionTime: {{ $now }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now }}}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  {{ if eq .restartPolicy "Always" }}
  started: true
  state: {running: {startedAt: {{ $now }}}}
  {{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now }}, finishedAt: {{ $now }}}}
  {{ end }}
{{ end }}
"""

_DONE: Final = """\
{{ $now := Now | Quote }}
phase: Succeeded
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now }}, finishedAt: {{ $now }}}}
{{ end }}
"""


def documents() -> str:
    """The stages as documents of KWOK's configuration file."""
    stages = (
        _stage(
            "pod-ready", [_ALIVE, {"key": ".status.podIP", "operator": "DoesNotExist"}], {"statusTemplate": _RUNNING}
        ),
        _stage(
            "pod-complete",
            [
                _ALIVE,
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
                {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]},
                {"key": f'.metadata.annotations["{ENDLESS}"]', "operator": "DoesNotExist"},
            ],
            {"statusTemplate": _DONE},
        ),
        _stage(
            "pod-delete",
            [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
            {"finalizers": {"empty": True}, "delete": True},
        ),
    )
    return "".join(f"---\n{json.dumps(stage)}\n" for stage in stages)


def _stage(name: str, when: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }
