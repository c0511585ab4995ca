"""One JSON object a line, joined with what it is about; detail where something is wrong; never in the way of work."""

import logging
import logging.config
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.settings import load_settings
from kfm_pipelines.telemetry.logs.configure import LogFile, configure_logs, error_fields
from kfm_pipelines.telemetry.logs.context import log_context
from kfm_pipelines.telemetry.traces.spans import PresetIdGenerator, Spans
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to, settings_of

KEY = "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"

log = logging.getLogger("kfm_pipelines.tests")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with logging_to(tmp_path) as opened:
        yield opened


def test_a_line_says_when_who_what_and_about_which_key(file: Path) -> None:
    with log_context(run_id="run-1", idempotency_key=KEY, stage="mask", event_id=None):
        log.info("%d rows", 3)

    [line] = lines_of(file)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("at"))
    assert line == {
        "level": "info",
        "logger": "kfm_pipelines.tests",
        "event": "3 rows",
        "run_id": "run-1",
        "idempotency_key": KEY,
        "stage": "mask",
    }


def test_what_is_bound_inside_adds_and_goes(file: Path) -> None:
    with log_context(run_id="run-1", stage="mask"):
        with log_context(stage="publish", object_key="a/b.parquet"):
            log.info("inner")
        log.info("outer")
    log.info("none")

    told = {line["event"]: (line.get("run_id"), line.get("stage"), line.get("object_key")) for line in lines_of(file)}
    assert told == {
        "inner": ("run-1", "publish", "a/b.parquet"),
        "outer": ("run-1", "mask", None),
        "none": (None, None, None),
    }


def test_nothing_stays_bound_when_generators_are_left_in_another_order(file: Path) -> None:
    def keys() -> Iterator[str]:
        with log_context(idempotency_key="first"):
            yield "first"

    generator = keys()
    next(generator)
    with log_context(stage="mask"):
        assert next(generator, None) is None
        log.info("after the generator")
    log.info("after all")

    after_generator, after_all = lines_of(file)
    assert "idempotency_key" not in after_generator
    assert after_generator["stage"] == "mask"
    assert not {"idempotency_key", "stage"} & set(after_all)


def test_nothing_stays_bound_after_an_exception(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), log_context(run_id="run-1"):
        raise ZeroDivisionError
    log.info("after")
    assert "run_id" not in lines_of(file)[0]


def test_lines_are_joined_by_nothing_else() -> None:
    with pytest.raises(TypeError, match="not by person"):
        log_context(person="somebody")  # type: ignore[call-arg]


def test_the_trace_is_the_one_of_the_open_span_unless_it_is_named(file: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    spans = Spans(TracerProvider(id_generator=PresetIdGenerator(), shutdown_on_exit=False).get_tracer("tests"))
    with spans.span("mask") as span:
        assert span is not None
        log.info("in a span")
        with log_context(trace_id="0" * 31 + "1"):
            log.info("in a trace of its own")
    log.info("in none")

    found = [line.get("trace_id") for line in lines_of(file)]
    assert found == [f"{span.get_span_context().trace_id:032x}", "0" * 31 + "1", None]


def test_an_error_is_told_by_its_class_and_where_and_not_by_what_it_says(file: Path) -> None:
    try:
        try:
            int("39.09973 Quillwort Hollow")
        except ValueError as error:
            raise KeyError("Quillwort Hollow") from error
    except KeyError as error:
        log.exception("a step failed")
        log.error("told by hand", extra=error_fields(error))

    by_logging, by_hand = lines_of(file)
    assert by_logging["error"] == by_hand["error"]
    assert by_hand["error"]["class"] == "KeyError"
    assert by_hand["error"]["causes"] == ["ValueError"]
    [frame] = by_hand["error"]["frames"]
    assert re.fullmatch(r"test_logs\.py:\d+ test_an_error_is_told_.*", frame)
    assert b"Quillwort" not in file.read_bytes()


def test_fields_of_a_call_are_kept_and_never_stand_for_ours(file: Path) -> None:
    log.info("published", extra={"rows": 3, "level": "fatal", "at": "never", "event": "x", "run_id": "run-2"})

    [line] = lines_of(file)
    assert (line["rows"], line["run_id"]) == (3, "run-2")
    assert (line["level"], line["event"]) == ("info", "published")
    assert (line["level_"], line["at_"]) == ("fatal", "never")


def test_structlog_comes_out_the_same_way(file: Path) -> None:
    wrap = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
    logger = structlog.wrap_logger(log, processors=[wrap], wrapper_class=structlog.stdlib.BoundLogger)
    with log_context(run_id="run-1"):
        logger.info("published", rows=3)

    [line] = lines_of(file)
    assert {name: line[name] for name in ("level", "event", "rows", "run_id")} == {
        "level": "info",
        "event": "published",
        "rows": 3,
        "run_id": "run-1",
    }


def test_libraries_are_heard_when_something_is_wrong(file: Path) -> None:
    library = logging.getLogger("a.library")
    library.setLevel(logging.DEBUG)
    library.info("chatter")
    library.warning("trouble")
    log.debug("detail")
    assert [line["event"] for line in lines_of(file)] == ["trouble"]


@pytest.mark.parametrize(("level", "kept"), [("debug", 3), ("info", 2), ("error", 1)])
def test_how_much_is_kept_can_be_set(tmp_path: Path, level: str, kept: int) -> None:
    with logging_to(tmp_path, KFM_LOG_LEVEL=level) as file:
        for told in (logging.DEBUG, logging.INFO, logging.ERROR):
            log.log(told, "something")
    assert len(lines_of(file)) == kept


def test_switched_off_there_is_no_file(tmp_path: Path) -> None:
    with logging_to(tmp_path, KFM_LOG_LEVEL="off"):
        log.error("something")
    assert not (tmp_path / "telemetry").exists()


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="KFM_LOG_LEVEL must be one of debug, info"):
        load_settings({"KFM_POSTGRES_URL": "postgresql://nobody@nowhere/none", "KFM_LOG_LEVEL": "loud"})


def test_configured_often_it_is_one_handler_and_the_last_home(tmp_path: Path) -> None:
    with logging_to(tmp_path / "first") as first, logging_to(tmp_path / "second") as second:
        configure_logs(settings_of(tmp_path / "second"))
        log.info("once")
        assert sum(isinstance(handler, LogFile) for handler in logging.getLogger().handlers) == 1
    assert not first.exists()
    assert len(lines_of(second)) == 1
    assert second.stat().st_mode & 0o777 == 0o600


def test_it_goes_on_when_somebody_configures_logging_anew(file: Path) -> None:
    """Dagster does for every run, which closes all handlers there are."""
    log.info("before")
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    log.info("after")
    assert [line["event"] for line in lines_of(file)] == ["before", "after"]


def test_a_folder_that_cannot_be_written_stops_nothing_and_is_told_later(tmp_path: Path) -> None:
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
from kfm_pipelines_tests.telemetry.log_file import logging_to
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = logging.getLogger("kfm_pipelines.tests")
with logging_to(Path(sys.argv[1])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1050, 4000))
    for number in range(100):
        log.info("line %d", number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    log.info("there is room again")
print("done")
"""


def test_a_full_disk_stops_nothing_and_breaks_one_line_at_most(tmp_path: Path) -> None:
    """A limit on the size of files writes the part of a line that fits, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
    lines = (tmp_path / "telemetry" / "log.jsonl").read_text().splitlines()
    whole = [line for line in lines if line.endswith("}")]
    assert len(lines) - len(whole) == 1
    assert "lines before this one could not be written" in whole[-2]
    assert "there is room again" in whole[-1]


def test_lines_of_many_processes_are_whole(tmp_path: Path) -> None:
    write = "import sys; from pathlib import Path; from kfm_pipelines.telemetry.append_only import AppendOnly\n"
    write += "file = AppendOnly(Path(sys.argv[1]), largest_bytes=200_000)\n"
    write += "for n in range(500): file.write(sys.argv[2] * 1000 + '\\n')"
    file = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", write, str(file), name]) for name in "abcd"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    lines = file.read_text().splitlines()
    assert all(line in {name * 1000 for name in "abcd"} for line in lines)
    assert file.stat().st_size <= 210_000
