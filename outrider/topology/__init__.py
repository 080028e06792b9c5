"""Network topology of nodes: levels, domains, distances. Pure."""
