"""Orchestration: datasets as assets, queues as sensors, keys as partitions. The only package that knows Dagster."""
