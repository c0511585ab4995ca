"""Tests of kfm_pipelines.events."""
