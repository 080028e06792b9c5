"""What the lines of the kernel log say about the hardware: pure parsers, for the node agent and for saved logs."""
