"""Replays, from the plan to the last key."""
