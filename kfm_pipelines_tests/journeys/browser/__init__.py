"""Tests that look at pages in a real browser; skipped where there is none."""
