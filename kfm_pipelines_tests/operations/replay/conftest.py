"""The published site that the tests of this folder share."""

from kfm_pipelines_tests.fixtures.runs.replay import published, shared_published

__all__ = ["published", "shared_published"]
