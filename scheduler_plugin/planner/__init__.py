"""The leader: takes each gang from its first pod to its last bound one, and keeps it whole."""
