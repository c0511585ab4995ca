"""The embedded stack: real processes, killed in every way they may be."""
