"""Scheduler extender and gang planner."""
