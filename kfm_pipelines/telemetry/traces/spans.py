"""Spans, the trace context that messages and rows carry, and the file that spans are written to when they end."""

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import IO, Literal, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from kfm_pipelines.telemetry.line_files import AppendOnlyFile, CountDropped, OneTimeWarning

SPANS_FILE = "spans.jsonl"
SPAN_BATCH_SIZE = 200
TRACEPARENT = "traceparent"  # the message attribute that holds one
# W3C: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

SpanValue = str | int | float | bool | Sequence[str]
SpanKindName = Literal["internal", "producer", "consumer"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A position in a trace: one of its spans."""

    trace_id: int
    span_id: int

    @classmethod
    def parse(cls, traceparent: str | None) -> "TraceContext | None":
        """Returns None when the traceparent is missing or invalid."""
        found = _TRACEPARENT.fullmatch(traceparent or "")
        if found is None or not int(found[1], 16) or not int(found[2], 16):
            return None
        return cls(int(found[1], 16), int(found[2], 16))

    @classmethod
    def of_event(cls, identity: str) -> "TraceContext":
        """Returns the root span that producer and consumer derive alike: S3 notifications carry no context."""
        digest = hashlib.sha256(f"kfm-trace-1:{identity}".encode()).digest()
        return cls(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_hex}-{self.span_id:016x}-01"

    @property
    def trace_hex(self) -> str:
        return f"{self.trace_id:032x}"


_preset_context: ContextVar[TraceContext | None] = ContextVar("preset_context", default=None)


class PresetIdGenerator(RandomIdGenerator):
    """Generates random ids, except for a span whose ids are preset."""

    def generate_trace_id(self) -> int:
        preset = _preset_context.get()
        return preset.trace_id if preset else super().generate_trace_id()

    def generate_span_id(self) -> int:
        preset = _preset_context.get()
        return preset.span_id if preset else super().generate_span_id()


class Spans:
    """Opens spans; without a tracer it opens none."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self.tracer = tracer

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Mapping[str, SpanValue] | None = None,
        *,
        parent: TraceContext | None = None,
        kind: SpanKindName = "internal",
        links: Sequence[TraceContext] = (),
        begun: datetime | None = None,
    ) -> Iterator[trace.Span | None]:
        """Opens a span under the parent, or else the current span. An exception marks it failed, by its class only."""
        if self.tracer is None:
            yield None
            return
        with trace.use_span(
            _start_span(self.tracer, name, attributes, _parent_context(parent), kind, links, at=begun),
            end_on_exit=True,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                mark_failed(span, type(error).__name__)
                raise

    def emit_root_span(
        self, name: str, context: TraceContext, begun: datetime, ended: datetime, attributes: Mapping[str, SpanValue]
    ) -> None:
        """Emits the completed first span of a trace, with the ids of the given context."""
        if self.tracer is None:
            return
        token = _preset_context.set(context)
        try:
            span = _start_span(self.tracer, name, attributes, Context(), "producer", at=begun)
        finally:
            _preset_context.reset(token)
        span.end(_nanoseconds(max(begun, ended)))

    def emit_past_span(
        self,
        name: str,
        begun: datetime,
        ended: datetime,
        attributes: Mapping[str, SpanValue],
        *,
        parent: TraceContext,
        kind: SpanKindName = "internal",
        failed: str | None = None,
    ) -> TraceContext:
        """Emits a completed span, and returns its context for the spans below it."""
        if self.tracer is None:
            return parent
        span = _start_span(self.tracer, name, attributes, _parent_context(parent), kind, at=begun)
        if failed:
            mark_failed(span, failed)
        span.end(_nanoseconds(max(begun, ended)))
        return context_of(span) or parent


def mark_failed(span: trace.Span | None, why: str) -> None:
    """`why` is a class name or a short reason that quotes no data."""
    if span is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, why))
        span.set_attribute("error.type", why)


def context_of(span: trace.Span | None) -> TraceContext | None:
    if span is None:
        return None
    context = span.get_span_context()
    return TraceContext(context.trace_id, context.span_id) if context.is_valid else None


def current_span() -> trace.Span:
    """Returns the open span, or one that records nothing."""
    return trace.get_current_span()


def current_span_attributes(names: Collection[str]) -> dict[str, SpanValue]:
    attributes = getattr(current_span(), "attributes", None) or {}  # a span that records nothing has none
    return {name: value for name, value in attributes.items() if name in names}


def _start_span(
    tracer: trace.Tracer,
    name: str,
    attributes: Mapping[str, SpanValue] | None,
    context: Context | None,
    kind: SpanKindName,
    links: Sequence[TraceContext] = (),
    *,
    at: datetime | None = None,
) -> trace.Span:
    return tracer.start_span(
        name,
        context=context,
        kind=trace.SpanKind[kind.upper()],
        attributes=attributes,
        links=[trace.Link(_remote_context(one)) for one in links],
        start_time=_nanoseconds(at) if at else None,
        record_exception=False,
        set_status_on_exception=False,
    )


def _parent_context(parent: TraceContext | None) -> Context | None:
    return trace.set_span_in_context(trace.NonRecordingSpan(_remote_context(parent))) if parent else None


def _remote_context(one: TraceContext) -> trace.SpanContext:
    return trace.SpanContext(one.trace_id, one.span_id, is_remote=True, trace_flags=trace.TraceFlags(1))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


class ServiceResource(Resource):
    """Describes this service. Computes its hash once; exporters ask every span for it, and OpenTelemetry's is slow."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash


class SpansFile(SpanProcessor):
    """Writes ended spans in batches, one OTLP JSON line each. Spans that cannot be written are dropped and counted."""

    def __init__(self, folder: Path, count_dropped: CountDropped) -> None:
        from opentelemetry.exporter.otlp.json.file import FileSpanExporter

        self._file = AppendOnlyFile(folder / SPANS_FILE)
        self._exporter = FileSpanExporter(stream=cast(IO[str], self._file))
        self._count_dropped = count_dropped
        self._warning = OneTimeWarning(log)
        self._pending: list[ReadableSpan] = []
        self._lock = Lock()

    def on_end(self, span: ReadableSpan) -> None:
        with self._lock:
            self._pending.append(span)
            is_full = len(self._pending) >= SPAN_BATCH_SIZE
        if is_full:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            ended, self._pending = self._pending, []
        if ended and self._exporter.export(ended) is not SpanExportResult.SUCCESS:
            self._warning.log("spans could not be written to %s", self._file.path.name)
            self._count_dropped("span", len(ended))

    def close(self) -> None:
        self._file.close()
