"""Metrics of Kubernetes access, in every component that talks to the API server."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

REQUEST_SECONDS: Final = Histogram(
    "outrider_kube_request_seconds",
    "Time until the API server's answer began, by verb, resource and HTTP code; code 0: no answer, or cut short.",
    ["verb", "resource", "code"],
    buckets=(0.005, 0.025, 0.1, 0.5, 2.5, 10),
)
UNDECODABLE: Final = Counter(
    "outrider_kube_undecodable_objects_total",
    "Objects skipped because a field does not have the expected type; the log names object and field.",
    ["resource"],
)
RELISTS: Final = Counter(
    "outrider_kube_lists_total",
    "Full lists by informers: one at the start, then one each time that the history was lost (HTTP 410).",
    ["resource"],
)
STREAM_ENDS: Final = Counter(
    "outrider_kube_broken_watches_total", "Watches that ended with an error and were resumed.", ["resource"]
)
LEADER: Final = Gauge("outrider_leader", "1 while this process holds the lease, else 0.", ["lease"])
EVENTS_LOST: Final = Counter("outrider_kube_events_lost_total", "Kubernetes Events that could not be written.")
