"""The installed Dagster is the version whose private names were checked, and only a code server forks."""

import multiprocessing
import sys
from importlib.metadata import version

import dagster as dg
import pytest

from kfm_pipelines.orchestration.dagster_internals import fork_runs, was_interrupted

CHECKED_WITH = "1.13.27"


def test_dagster_is_the_version_whose_internals_were_checked() -> None:
    """After an upgrade: run the tests of backfills, the run queue, the daemon and published metadata, then this."""
    assert version("dagster") == CHECKED_WITH


@pytest.mark.parametrize("command", [["dagster", "dev"], ["kfm", "work"], ["pytest"]])
def test_only_a_code_server_forks_its_runs(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", command)
    fork_runs("a.module.that.nobody.imports")
    assert multiprocessing.get_context("spawn").Process.__name__ == "SpawnProcess"


@pytest.mark.parametrize(
    ("error", "interrupted"), [(KeyboardInterrupt(), True), (ValueError("no"), False), (None, False)]
)
def test_a_run_that_ctrl_c_has_ended_is_recognised(error: BaseException | None, *, interrupted: bool) -> None:
    @dg.op
    def stop() -> None:
        if error is not None:
            raise error

    @dg.job
    def one() -> None:
        stop()

    assert was_interrupted(one.execute_in_process(raise_on_error=False)) is interrupted
