"""Tags of runs. Free of Dagster imports, because commands load this module at start-up."""

REPLAY_TAG = "kfm/replay"  # the replay that requested the run
BACKFILL_TAG = "dagster/backfill"  # set by Dagster
DATASET_TAG = "kfm/dataset"
RUN_LIMIT_TAG_PREFIX = "kfm/at-most-"
