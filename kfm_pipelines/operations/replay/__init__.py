"""Replays: reruns history from a reviewed plan, a few keys first, then the rest in batches. Only `jobs` and `cli` talk
to Dagster."""
