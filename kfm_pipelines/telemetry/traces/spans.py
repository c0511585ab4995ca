"""Spans: what took how long, in which trace. What is told of a span is told when it ends."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from kfm_pipelines.telemetry.traces.context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

SpanValue = str | int | float | bool | Sequence[str]
SpanKindName = Literal["internal", "producer", "consumer"]

_preset_context: ContextVar[TraceContext | None] = ContextVar("given", default=None)


class PresetIdGenerator(RandomIdGenerator):
    """Random ids, but for a span that has to have certain ones."""

    def generate_trace_id(self) -> int:
        given = _preset_context.get()
        return given.trace_id if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        given = _preset_context.get()
        return given.span_id if given else super().generate_span_id()


class Spans:
    """Opens spans; without a tracer it opens none."""

    def __init__(self, tracer: "Tracer | None") -> None:
        self._tracer = tracer

    def use_tracer(self, tracer: "Tracer") -> None:
        """From now on open them with this one."""
        self._tracer = tracer

    @property
    def is_enabled(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Mapping[str, SpanValue] | None = None,
        *,
        parent: TraceContext | None = None,
        kind: SpanKindName = "internal",
        links: Sequence[TraceContext] = (),
    ) -> "Iterator[Span | None]":
        """A span around what is done in it, under the given one, else under the one that is open here. An exception
        that passes marks it as failed, by its class alone: what it says may quote data."""
        if self._tracer is None:
            yield None
            return
        from opentelemetry import trace

        with trace.use_span(
            _start_span(self._tracer, name, attributes, parent, kind, links),
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
        """The first span of a trace, over already, whose ids others may have found without being told."""
        if self._tracer is None:
            return
        token = _preset_context.set(context)
        try:
            span = _start_span(self._tracer, name, attributes, None, "producer", (), at=begun, is_root=True)
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
        """A span that is over already, and whether it failed; where it is, for those under it."""
        if self._tracer is None:
            return parent
        span = _start_span(self._tracer, name, attributes, parent, kind, (), at=begun)
        if failed:
            mark_failed(span, failed)
        span.end(_nanoseconds(max(begun, ended)))
        return context_of(span) or parent


def mark_failed(span: "Span | None", why: str) -> None:
    """`why` is a class or a short reason, nothing that quotes data."""
    if span is None:
        return
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))
    span.set_attribute("error.type", why)


def context_of(span: "Span | None") -> TraceContext | None:
    if span is None:
        return None
    context = span.get_span_context()
    return TraceContext(context.trace_id, context.span_id) if context.is_valid else None


def current_span() -> "Span":
    """The span that is open here, to say more of it; one that keeps nothing when there is none."""
    from opentelemetry import trace

    return trace.get_current_span()


def current_span_attributes(names: Collection[str]) -> dict[str, SpanValue]:
    """What is told under these names of the span that is open here, so far."""
    attributes = getattr(current_span(), "attributes", None) or {}  # one that keeps nothing has none
    return {name: value for name, value in attributes.items() if name in names}


def _start_span(
    tracer: "Tracer",
    name: str,
    attributes: Mapping[str, SpanValue] | None,
    parent: TraceContext | None,
    kind: SpanKindName,
    links: Sequence[TraceContext],
    *,
    at: datetime | None = None,
    is_root: bool = False,
) -> "Span":
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    return tracer.start_span(
        name,
        context=Context() if is_root else _parent_context(parent),
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        links=[_link(one) for one in links],
        start_time=_nanoseconds(at) if at else None,
        record_exception=False,
        set_status_on_exception=False,
    )


def _parent_context(parent: TraceContext | None) -> "Context | None":
    if parent is None:
        return None
    from opentelemetry import trace

    return trace.set_span_in_context(trace.NonRecordingSpan(_remote_context(parent)))


def _link(one: TraceContext) -> "Link":
    from opentelemetry.trace import Link

    return Link(_remote_context(one))


def _remote_context(one: TraceContext) -> "trace.SpanContext":  # type: ignore[name-defined] # noqa: F821
    from opentelemetry import trace

    return trace.SpanContext(one.trace_id, one.span_id, is_remote=True, trace_flags=trace.TraceFlags(1))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
