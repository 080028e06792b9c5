"""The cluster as decisions see it: objects from the API server, sums over them, snapshots."""
