"""Tags on runs that both Dagster and the pipeline read."""

# On every run that a replay asks for: which replay.
REPLAY_TAG = "kfm/replay"
# What Dagster puts on the runs of a backfill.
BACKFILL_TAG = "dagster/backfill"
DATASET_TAG = "kfm/dataset"
RUN_LIMIT_TAG_PREFIX = "kfm/at-most-"
