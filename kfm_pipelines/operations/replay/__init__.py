"""Replays: history done again, from a plan somebody has read, a few keys first, then the rest in batches.

Belongs here: what a replay decides and remembers. Does not: asking Dagster for anything (`orchestration.replaying`).
"""
