"""Sources of evidence, one file each; importing node_agent.probes.all registers them."""
