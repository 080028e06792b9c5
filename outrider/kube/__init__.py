"""Access to the Kubernetes API: transport, client, informer, leader election, events."""
