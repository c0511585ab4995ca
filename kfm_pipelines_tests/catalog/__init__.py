"""Tests of the catalogs package."""
