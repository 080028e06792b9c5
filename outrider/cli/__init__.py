"""The outrider command, also installed as kubectl outrider."""
