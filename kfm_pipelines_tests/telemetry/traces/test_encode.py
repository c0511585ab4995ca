"""What is written of spans is what OpenTelemetry's own encoder makes of them."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider

from kfm_pipelines.telemetry.traces.context import TraceContext
from kfm_pipelines.telemetry.traces.encode import encode_line
from kfm_pipelines.telemetry.traces.spans import SpanKindName, Spans, SpanValue, mark_failed

TEXT = st.text(max_size=20)
VALUES = st.one_of(
    TEXT,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.lists(TEXT, max_size=3),
    st.lists(st.integers(-9, 9), max_size=3),
)
ATTRIBUTES = st.dictionaries(st.text(min_size=1, max_size=10), VALUES, max_size=6)
CONTEXTS = st.builds(TraceContext, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))


class Ended(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def tracing(**limits: int) -> tuple[Spans, Ended]:
    provider = TracerProvider(resource=Resource({"service.name": "a test"}), span_limits=SpanLimits(**limits))
    ended = Ended()
    provider.add_span_processor(ended)
    return Spans(provider.get_tracer("tests")), ended


def agree(spans: Sequence[ReadableSpan]) -> None:
    [line] = encode_line(spans).splitlines()
    assert json.dumps(json.loads(line), sort_keys=True) == json.dumps(encode_spans(spans).to_dict(), sort_keys=True)


@given(
    name=st.text(min_size=1, max_size=20),
    attributes=ATTRIBUTES,
    under=st.none() | CONTEXTS,
    kind=st.sampled_from(["internal", "producer", "consumer"]),
    links=st.lists(CONTEXTS, max_size=2),
    failed=st.none() | TEXT,
)
def test_any_span_of_ours(
    name: str,
    attributes: dict[str, SpanValue],
    under: TraceContext | None,
    kind: SpanKindName,
    links: list[TraceContext],
    failed: str | None,
) -> None:
    spans, ended = tracing()
    with (
        spans.span(name, attributes, parent=under, kind=kind, links=links) as opened,
        spans.span("a part"),
    ):
        if failed is not None:
            mark_failed(opened, failed)
    assert len(ended.spans) == 2
    agree(ended.spans)


def test_attributes_beyond_the_limit_are_counted() -> None:
    spans, ended = tracing(max_span_attributes=2)
    with spans.span("many", {"one": 1, "two": 2, "three": 3}):
        pass
    assert '"droppedAttributesCount":1' in encode_line(ended.spans)
    agree(ended.spans)


def test_a_span_that_is_well() -> None:
    spans, ended = tracing()
    with spans.span("well") as opened:
        assert opened is not None
        opened.set_status(trace.Status(trace.StatusCode.OK))
    agree(ended.spans)


@pytest.mark.parametrize("number", [1, 200])
def test_many_share_what_surrounds_them(number: int) -> None:
    spans, ended = tracing()
    for _ in range(number):
        with spans.span("one"):
            pass
    assert encode_line(ended.spans).count("service.name") == 1
    agree(ended.spans)
