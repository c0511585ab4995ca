"""What Dagster loads."""

from kfm_pipelines.orchestration.build import build_definitions

defs = build_definitions()
