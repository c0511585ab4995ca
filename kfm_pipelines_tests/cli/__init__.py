"""Tests of the kfm command, run as a user runs it: as a process."""
