"""What others get to see of the agent's knowledge: node, GPUNode, device taints, events."""
