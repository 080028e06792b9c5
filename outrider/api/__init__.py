"""Custom resources and the names Outrider puts on Kubernetes objects."""
