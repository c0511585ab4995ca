"""Whatever is logged is one line of printable ASCII JSON, with its context, and nothing raises."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from kfm_pipelines.telemetry.logs.configure import error_fields
from kfm_pipelines.telemetry.logs.lines import MAX_LINE_LENGTH, log_context
from kfm_pipelines.telemetry.traces.spans import PresetIdGenerator, Spans
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to

KEY = "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"

log = logging.getLogger("kfm_pipelines.tests")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with logging_to(tmp_path) as opened:
        yield opened


def test_a_line_has_time_level_logger_event_and_context(file: Path) -> None:
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


def test_an_inner_context_adds_fields_and_is_unbound_again(file: Path) -> None:
    with log_context(run_id="run-1", stage="mask"):
        with log_context(stage="publish", object_key="a/b.parquet"):
            log.info("inner")
        log.info("outer")
    log.info("none")

    found = {line["event"]: (line.get("run_id"), line.get("stage"), line.get("object_key")) for line in lines_of(file)}
    assert found == {
        "inner": ("run-1", "publish", "a/b.parquet"),
        "outer": ("run-1", "mask", None),
        "none": (None, None, None),
    }


def test_nothing_stays_bound_when_generators_end_in_another_order(file: Path) -> None:
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


def test_the_trace_is_that_of_the_open_span_unless_bound(file: Path) -> None:
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


def test_an_error_is_logged_by_class_and_frames_without_its_message(file: Path) -> None:
    try:
        try:
            int("39.09973 Quillwort Hollow")
        except ValueError as error:
            raise KeyError("Quillwort Hollow") from error
    except KeyError as error:
        log.exception("a step failed")
        log.error("logged with fields", extra=error_fields(error))

    by_logging, by_hand = lines_of(file)
    assert by_logging["error"] == by_hand["error"]
    assert by_hand["error"]["class"] == "KeyError"
    assert by_hand["error"]["causes"] == ["ValueError"]
    [frame] = by_hand["error"]["frames"]
    assert re.fullmatch(r"test_lines\.py:\d+ test_an_error_is_logged_.*", frame)
    assert b"Quillwort" not in file.read_bytes()


def test_extra_fields_never_replace_reserved_ones(file: Path) -> None:
    log.info("published", extra={"rows": 3, "level": "fatal", "at": "never", "event": "x", "run_id": "run-2"})

    [line] = lines_of(file)
    assert (line["rows"], line["run_id"]) == (3, "run-2")
    assert (line["level"], line["event"]) == ("info", "published")
    assert (line["level_"], line["at_"]) == ("fatal", "never")


def test_structlog_is_logged_the_same_way(file: Path) -> None:
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


class Angry:
    """Raises whenever it is formatted."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no")


class AngryText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no")


class Endless(dict[str, Any]):
    def items(self) -> Any:
        return self


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)

# By name, because Hypothesis formats its examples.
ODD: dict[str, Any] = {
    "(angry)": Angry(),
    "(angry text)": AngryText("x"),
    "(endless)": Endless(),
    "(circle)": CIRCLE,
    "(class)": object,
    "(error)": ValueError("x"),
    "(large)": 10**5000,
}

TEXT = st.text(st.characters(codec=None, categories=None), max_size=50) | st.sampled_from(
    ["\r\n", "\u2028", "\u2029", "\x85", "\x1b[2J\x1b]0;title\x07", "\ud800", "\x00", '"}\n{"level":"fatal', "%s%d"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=20) | st.sampled_from([*ODD]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4) | st.tuples(inner),
    max_leaves=8,
)
# Python refuses names that are part of a record.
NAMES = TEXT.filter(lambda name: name not in logging.makeLogRecord({}).__dict__ and name not in ("message", "asctime"))


def resolve_names(value: Any) -> Any:
    """Replaces the names of odd values by the values."""
    if isinstance(value, str):
        return ODD.get(value, value)
    if isinstance(value, list | tuple):
        return type(value)(resolve_names(one) for one in value)
    if isinstance(value, dict):
        return {name: resolve_names(one) for name, one in value.items()}
    return value


def only_line(file: Path) -> dict[str, Any]:
    """Returns the only line and deletes the file."""
    data = file.read_bytes()
    file.unlink()
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    assert data[:-1].decode("ascii").isprintable()
    line: dict[str, Any] = json.loads(data)
    for text in texts_in(line):
        assert text.isprintable()
        text.encode()
    assert line["level"] in ("info", "error")
    return line


def texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    elif isinstance(value, dict):
        yield from texts_in([*value, *value.values()])


@pytest.fixture(scope="module")
def debug_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with logging_to(tmp_path_factory.mktemp("home"), KFM_LOG_LEVEL="debug") as opened:
        yield opened


def log_line(file: Path, *arguments: Any, **named: Any) -> dict[str, Any]:
    """Bypasses the other handlers: Python prints what pytest's cannot format."""
    for handler in logging.getLogger().handlers:
        if handler.__class__.__module__.startswith("kfm_pipelines"):
            handler.close()
            handler.handle(log.makeRecord(log.name, logging.INFO, "f.py", 1, *arguments, **named))
    return only_line(file)


@given(template=TEXT | VALUES, arguments=st.lists(VALUES, max_size=3), extra=st.dictionaries(NAMES, VALUES, max_size=5))
@example(template="%d %d", arguments=["x"], extra={})
@example(template="%s", arguments=["(angry)"], extra={"one": "(angry)", "text": "(angry text)", "event": "forged"})
@example(template="(angry)", arguments=[], extra={"at": "never", "level": "fatal", "error": {}, "_logger": 1})
@example(template={"event": "x"}, arguments=[], extra={"_logger": None, "_name": "info", "_record": 3})
def test_any_record_is_one_line(debug_file: Path, template: Any, arguments: list[Any], extra: dict[str, Any]) -> None:
    line = log_line(
        debug_file, resolve_names(template), tuple(resolve_names(arguments)), None, "function", resolve_names(extra)
    )
    assert list(line)[:4] == ["at", "level", "logger", "event"]
    assert line["logger"] in (log.name, "kfm_pipelines.telemetry.logs.lines")


@given(VALUES)
def test_a_record_with_any_exc_info_is_one_line(debug_file: Path, given: Any) -> None:
    error = resolve_names(given)
    log_line(debug_file, "it failed", (), error if isinstance(error, tuple) else (type(error), error, None))


@given(st.dictionaries(st.sampled_from(["run_id", "object_key", "stage"]), VALUES))
def test_a_record_with_any_context_is_one_line(debug_file: Path, fields: Any) -> None:
    with log_context(**resolve_names(fields)):
        assert log_line(debug_file, "joined", (), None)["event"] == "joined"


def test_very_many_fields_are_cut(debug_file: Path) -> None:
    many = {f"field{number}": ["x" * 5000] * 100 for number in range(100)}
    line = log_line(debug_file, "a lot", (), None, "function", many)
    assert line["event"] == "a lot"
    assert len(json.dumps(line)) <= MAX_LINE_LENGTH


def test_logging_never_raises(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With no other handlers."""
    root = logging.getLogger()
    others, root.handlers = root.handlers, []
    try:
        with logging_to(tmp_path) as file:
            log.info("%d of %d", "x")  # noqa: PLE1206
            log.info(Angry())
            log.info("angry", extra={"some": Angry()})
            log.info("no error", exc_info=True)
    finally:
        root.handlers = others
    assert [line["event"] for line in lines_of(file)] == [
        "%d of %d (its arguments cannot be formatted)",
        "(Angry) (its arguments cannot be formatted)",
        "angry",
        "no error",
    ]
    assert capfd.readouterr() == ("", "")
