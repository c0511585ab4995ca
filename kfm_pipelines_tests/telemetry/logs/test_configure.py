"""The log file keeps what its level asks for, survives reconfiguration, and never stops work."""

import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.settings import load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs
from kfm_pipelines.telemetry.logs.lines import LogFile
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to, settings_of

log = logging.getLogger("kfm_pipelines.tests")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with logging_to(tmp_path) as opened:
        yield opened


def test_libraries_are_logged_from_warning_on(file: Path) -> None:
    library = logging.getLogger("a.library")
    library.setLevel(logging.DEBUG)
    library.info("chatter")
    library.warning("trouble")
    log.debug("detail")
    assert [line["event"] for line in lines_of(file)] == ["trouble"]


@pytest.mark.parametrize(("level", "kept"), [("debug", 3), ("info", 2), ("error", 1)])
def test_the_level_can_be_set(tmp_path: Path, level: str, kept: int) -> None:
    with logging_to(tmp_path, KFM_LOG_LEVEL=level) as file:
        for severity in (logging.DEBUG, logging.INFO, logging.ERROR):
            log.log(severity, "something")
    assert len(lines_of(file)) == kept


def test_without_logging_there_is_no_file(tmp_path: Path) -> None:
    with logging_to(tmp_path, KFM_LOG_LEVEL="off"):
        log.error("something")
    assert not (tmp_path / "telemetry").exists()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="KFM_LOG_LEVEL must be one of debug, info"):
        load_settings({"KFM_POSTGRES_URL": "postgresql://nobody@nowhere/none", "KFM_LOG_LEVEL": "loud"})


def test_repeated_configuration_keeps_one_handler_for_the_last_home(tmp_path: Path) -> None:
    with logging_to(tmp_path / "first") as first, logging_to(tmp_path / "second") as second:
        configure_logs(settings_of(tmp_path / "second"))
        log.info("once")
        assert sum(isinstance(handler, LogFile) for handler in logging.getLogger().handlers) == 1
    assert not first.exists()
    assert len(lines_of(second)) == 1
    assert second.stat().st_mode & 0o777 == 0o600


def test_logging_continues_after_it_is_reconfigured(file: Path) -> None:
    """Dagster does so for every run, which closes all handlers."""
    log.info("before")
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    log.info("after")
    assert [line["event"] for line in lines_of(file)] == ["before", "after"]


def test_a_folder_that_cannot_be_written_stops_nothing_and_is_logged_later(tmp_path: Path) -> None:
    (tmp_path / "telemetry").write_text("a file where the folder should be")
    with logging_to(tmp_path) as file:
        log.info("lost")
        log.info("lost as well")
        (tmp_path / "telemetry").unlink()
        log.info("written")
    assert [line["event"] for line in lines_of(file)] == ["2 lines before this one could not be written", "written"]


FULL_DISK = """
import logging, resource, signal, sys
from pathlib import Path
from kfm_pipelines_tests.fixtures.telemetry.log_file import logging_to
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = logging.getLogger("kfm_pipelines.tests")
with logging_to(Path(sys.argv[1])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1050, 4000))
    for number in range(100):
        log.info("line %d", number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    log.info("there is space again")
print("done")
"""


def test_a_full_disk_stops_nothing_and_tears_one_line_at_most(tmp_path: Path) -> None:
    """A file size limit writes the part of a line that fits, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
    lines = (tmp_path / "telemetry" / "log.jsonl").read_text().splitlines()
    whole = [line for line in lines if line.endswith("}")]
    assert len(lines) - len(whole) == 1
    assert "lines before this one could not be written" in whole[-2]
    assert "there is space again" in whole[-1]
