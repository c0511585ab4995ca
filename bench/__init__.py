"""Benchmarks: every claim of speed is a ratio of two things measured in one run, because machines differ."""
