"""Scheduler extender and gang planner: runs beside a kube-scheduler of its own."""
