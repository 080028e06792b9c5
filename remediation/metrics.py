"""Metrics of the remediation controller, on prometheus_client's default registry."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

ACTIONS: Final = Counter(
    "outrider_remediation_actions_total", "Actions tried, by kind and by done, moot or refused", ["action", "outcome"]
)
EPISODES: Final = Counter("outrider_remediation_episodes_total", "Episodes that ended, by phase", ["phase"])
OPEN_EPISODES: Final = Gauge("outrider_remediation_open_episodes", "Episodes under way")
STEP_SECONDS: Final = Histogram(
    "outrider_remediation_step_seconds",
    "Duration of each rung, by its end",
    ["step", "state"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)
HELD: Final = Counter("outrider_remediation_held_total", "Looks at which nothing might be done, by reason", ["reason"])
DOMAIN_SCORE: Final = Gauge(
    "outrider_domain_score",
    "Health of a domain that nodes share, 0 (do not use) to 100; only domains below 100",
    ["level", "name"],
)
SUSPECT_DOMAINS: Final = Gauge("outrider_suspect_domains", "Domains that explain trouble of many nodes", ["cause"])
CRASHES: Final = Counter("outrider_application_crashes_total", "Programs that failed on all nodes of their job at once")
