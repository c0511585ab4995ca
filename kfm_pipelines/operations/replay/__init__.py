"""Replays: reruns history from a reviewed plan. Only `jobs` and `cli` talk to Dagster."""
