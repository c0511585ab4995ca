"""Checks that a producer's team runs against its own code."""
