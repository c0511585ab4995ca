"""Readers for every message shape the pipeline accepts."""
