"""Benchmarks through the real daemon."""
