"""What the probes' raw readings mean: from numbers and texts to evidence. Pure, one file or folder for each source."""
