"""The demo: a real training job loses a GPU and goes on elsewhere. Its scenario is the cluster tests' as well."""
