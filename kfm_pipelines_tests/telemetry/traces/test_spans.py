"""Trace contexts are parsed or derived from the event; spans come back from the file as they were emitted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kfm_pipelines.telemetry.metrics.reader import read_totals
from kfm_pipelines.telemetry.process import open_telemetry
from kfm_pipelines.telemetry.traces import spans
from kfm_pipelines.telemetry.traces.reader import read_spans
from kfm_pipelines.telemetry.traces.spans import SPAN_BATCH_SIZE, SpanValue, TraceContext, context_of, mark_failed
from kfm_pipelines_tests.fixtures.telemetry.signals import settings_in

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
START = datetime(2025, 12, 4, 3, tzinfo=UTC)


def test_a_traceparent_is_parsed_and_formatted_the_same() -> None:
    context = TraceContext.parse(TRACEPARENT)
    assert context is not None
    assert (context.trace_hex, f"{context.span_id:016x}") == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert context.traceparent == TRACEPARENT


@pytest.mark.parametrize(
    "invalid",
    [
        None,
        "",
        "rubbish",
        TRACEPARENT + "\n",
        TRACEPARENT.upper(),
        TRACEPARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        TRACEPARENT + "-more",
        "00-" + "a" * 100_000,
    ],
)
def test_an_invalid_traceparent_is_ignored(invalid: str | None) -> None:
    assert TraceContext.parse(invalid) is None


def test_an_event_has_the_same_trace_for_producer_and_consumer() -> None:
    """A golden vector: producers in other languages compute sha256("kfm-trace-1:" + identity)."""
    assert TraceContext.of_event("a" * 64).traceparent == ("00-a6b2c7b2cd92012a186d5ffb2dbb8392-f31eff820d896022-01")
    assert TraceContext.of_event("a" * 64) != TraceContext.of_event("b" * 64)


def test_spans_are_read_back_as_they_were_emitted(tmp_path: Path) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    root, other = TraceContext.of_event("a"), TraceContext.of_event("b")
    attributes: dict[str, SpanValue] = {
        "kfm.key": 'a "key"\n\u00e9',
        "n": -(2**62),
        "x": 0.1,
        "yes": True,
        "many": ["a", "b"],
        "none": [],
    }
    telemetry.spans.emit_root_span("root", root, START, START + timedelta(seconds=2), {})
    with telemetry.spans.span("part", attributes, parent=root, kind="consumer", links=[other]) as part:
        mark_failed(part, "a reason")
    with pytest.raises(KeyError), telemetry.spans.span("failing", parent=context_of(part)):
        raise KeyError("38.9717")
    telemetry.close()
    first, second, third = read_spans(tmp_path / "telemetry")
    assert (first.trace, int(first.id, 16), first.parent) == (root.trace_hex, root.span_id, None)
    assert (first.begun, first.milliseconds) == (START, 2000)
    assert (second.trace, second.parent, second.links) == (root.trace_hex, first.id, (other.trace_hex,))
    assert second.failed == "a reason"
    assert second.attributes == {**attributes, "error.type": "a reason"}
    assert (third.parent, third.failed) == (second.id, "KeyError")
    assert b"38.9717" not in (tmp_path / "telemetry" / "spans.jsonl").read_bytes()


def test_spans_that_cannot_be_encoded_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = open_telemetry(settings_in(tmp_path))
    monkeypatch.setattr("opentelemetry.exporter.otlp.json.file.trace_exporter.encode_spans", lambda _: 1 / 0)
    for _ in range(SPAN_BATCH_SIZE + 1):
        with telemetry.spans.span("work"):
            pass
    telemetry.close()
    dropped = read_totals(tmp_path / "telemetry").counter("telemetry_dropped_total", signal="span")
    assert dropped == SPAN_BATCH_SIZE + 1
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == [spans.__name__]
