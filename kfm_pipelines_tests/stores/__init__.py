"""Tests of the stores package."""
