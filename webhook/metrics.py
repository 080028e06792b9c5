"""What the webhook counts."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

REVIEWS: Final = Counter(
    "outrider_webhook_reviews_total",
    "Admission reviews answered, by outcome: mutated, unchanged, error (pod admitted unchanged), refused (no review).",
    ["outcome"],
)
DURATION: Final = Histogram(
    "outrider_webhook_review_duration_seconds",
    "Time to answer an admission review.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
)
PATCH_BYTES: Final = Histogram(
    "outrider_webhook_patch_bytes", "Size of the JSON patches sent.", buckets=(1024, 2048, 4096, 8192, 16384, 65536)
)
CERTIFICATE_EXPIRY: Final = Gauge(
    "outrider_webhook_certificate_expiry_timestamp_seconds", "When the serving certificate in use expires."
)
ROTATIONS: Final = Counter(
    "outrider_webhook_certificate_steps_total",
    "Steps of certificate rotation taken by this process, by step.",
    ["step"],
)
