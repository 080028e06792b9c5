"""From pods to jobs, gangs and ranks. Pure."""
