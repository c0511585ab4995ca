"""Tests of the gates package."""
