"""Commands log into a file and keep the terminal for their output."""

import os
from pathlib import Path

import pytest

from kfm_pipelines.telemetry.logs.lines import LOG_FILE
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of


@pytest.mark.slow
def test_a_worker_prints_counts_and_logs_details(site: Site) -> None:
    site.put(0, data=b"rubbish")
    site.put(1)

    result = kfm(site.environment, "work", "--once")

    assert (result.code, result.out) == (0, "2 keys: 1 published, 0 unchanged, 1 failed\n")
    assert result.err.strip() == "keys done: 2"
    lines = lines_of(site.root / "telemetry" / LOG_FILE)
    assert {"RUN_START", "STEP_SUCCESS", "STEP_FAILURE"} <= {line.get("dagster_event_type") for line in lines}
    assert any(line["logger"] == "kfm_pipelines.stages.telemetry.outcomes" for line in lines)


@pytest.mark.slow
def test_debug_mode_prints_library_logs(site: Site) -> None:
    site.put(0)
    result = kfm({**site.environment, "KFM_DEBUG": "1"}, "work", "--once")
    assert "RUN_SUCCESS" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("verify", "--help"), ("verify", "no:such:key")])
def test_a_command_that_needs_no_home_makes_none(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "AWS_"))}
    kfm({**environment, "KFM_HOME": str(home)}, *arguments)
    assert not home.exists()
