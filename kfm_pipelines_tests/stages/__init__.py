"""Tests of the stages package."""
