"""Tests of the state package: what the database itself refuses, and what the code makes of it."""
