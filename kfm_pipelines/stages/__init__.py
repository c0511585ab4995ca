"""The five stages of a run: compute, mask, validate, stage, publish. Dagster is imported in `stages.assets` only."""
