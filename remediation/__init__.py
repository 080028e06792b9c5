"""Controller that moves jobs off sick hardware and repairs it."""
