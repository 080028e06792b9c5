"""Answers about placement without a running planner: from the cluster as it is now, or from a saved snapshot of it."""
