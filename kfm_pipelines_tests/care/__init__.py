"""Tests of the care package."""
