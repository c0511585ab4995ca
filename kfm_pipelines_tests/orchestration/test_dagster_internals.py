"""The installed Dagster is the version whose private names were checked."""

from importlib.metadata import version

CHECKED_WITH = "1.13.27"


def test_dagster_is_the_version_whose_internals_were_checked() -> None:
    """After an upgrade: run the tests of backfills, of the run queue and of published metadata, then change this."""
    assert version("dagster") == CHECKED_WITH
