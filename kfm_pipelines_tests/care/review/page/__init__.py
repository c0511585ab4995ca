"""Tests of the page a reviewer decides by."""
