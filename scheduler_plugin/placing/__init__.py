"""Where a gang goes: pure functions from a snapshot to a placement, or to the reason that there is none."""
