"""Checks that a producer's team runs against its own code. They need nothing of the pipeline but these modules."""
