"""Whatever is logged is exactly one line of JSON in ASCII, with nothing that a terminal obeys, and nothing raises."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfm_pipelines.telemetry.logs.context import log_context
from kfm_pipelines.telemetry.logs.lines import MAX_LINE_LENGTH
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to

log = logging.getLogger("kfm_pipelines.tests")


class Angry:
    """Does not want to be looked at."""

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

# By their names: what draws examples looks at them.
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
# Python itself refuses, to whoever logs, what would stand for a part of its record.
NAMES = TEXT.filter(lambda name: name not in logging.makeLogRecord({}).__dict__ and name not in ("message", "asctime"))


def really(value: Any) -> Any:
    """The value with what odd names stand for."""
    if isinstance(value, str):
        return ODD.get(value, value)
    if isinstance(value, list | tuple):
        return type(value)(really(one) for one in value)
    if isinstance(value, dict):
        return {name: really(one) for name, one in value.items()}
    return value


def only_line(file: Path) -> dict[str, Any]:
    """The one line there is; then none."""
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
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with logging_to(tmp_path_factory.mktemp("home"), KFM_LOG_LEVEL="debug") as opened:
        yield opened


def tell(file: Path, *arguments: Any, **named: Any) -> dict[str, Any]:
    """The line that comes of it, from a file that is opened for it. Python would print what a handler of pytest cannot
    show."""
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
def test_a_record_is_one_line(file: Path, template: Any, arguments: list[Any], extra: dict[str, Any]) -> None:
    line = tell(file, really(template), tuple(really(arguments)), None, "function", really(extra))
    assert list(line)[:4] == ["at", "level", "logger", "event"]
    assert line["logger"] in (log.name, "kfm_pipelines.telemetry.logs.lines")


@given(VALUES)
def test_so_is_one_with_anything_for_an_exception(file: Path, given: Any) -> None:
    error = really(given)
    tell(file, "it failed", (), error if isinstance(error, tuple) else (type(error), error, None))


@given(st.dictionaries(st.sampled_from(["run_id", "object_key", "stage"]), VALUES))
def test_so_is_one_joined_by_anything(file: Path, fields: Any) -> None:
    with log_context(**really(fields)):
        assert tell(file, "joined", (), None)["event"] == "joined"


def test_fields_without_end_are_cut(file: Path) -> None:
    many = {f"field{number}": ["x" * 5000] * 100 for number in range(100)}
    line = tell(file, "a lot", (), None, "function", many)
    assert line["event"] == "a lot"
    assert len(json.dumps(line)) <= MAX_LINE_LENGTH


def test_logging_itself_does_not_raise_either(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Through the logger, as code does it, with nobody else who listens."""
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
    said = ["%d of %d (its arguments cannot be shown)", "(Angry) (its arguments cannot be shown)", "angry", "no error"]
    assert [line["event"] for line in lines_of(file)] == said
    assert capfd.readouterr() == ("", "")
