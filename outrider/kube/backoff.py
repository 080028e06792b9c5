"""One rule for waiting after failures, used wherever Outrider tries again."""


def delay_seconds(failures: int, *, base: float, cap: float, unit: float) -> float:
    """Return how long to wait after ``failures`` (>= 1) in a row: doubling from ``base`` to ``cap`` seconds.

    ``unit`` is a random number in [0, 1): the wait is spread over its upper half, so that many clients that lost the
    same server do not come back in step.
    """
    longest = min(cap, base * 2.0 ** min(failures - 1, 32))
    return longest * (0.5 + unit / 2)
