"""What kube-scheduler asks of us, pod by pod: filter, prioritize, preempt."""
