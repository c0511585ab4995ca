"""Spans as a line of OTLP's JSON.

The library's encoder makes an object of each attribute of each span, which took more of the time of a run than anything
else that is told in it. Here text is made at once, and what several spans say alike is made once. What surrounds them
is still of the library's making, and tests hold what is made here against it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext
    from opentelemetry.util.types import AttributeValue

# Of OTLP: that a span says whether its parent is remote, and that it is.
_HAS_IS_REMOTE_FLAG = 0x100
_IS_REMOTE_FLAG = 0x200
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_CACHE_SIZE = 4096

_quote = json.encoder.encode_basestring_ascii


def encode_line(spans: Sequence[ReadableSpan]) -> str:
    """Of one tracer, so that the first one's surroundings are those of all."""
    request = encode_spans(spans[:1]).to_dict()
    request["resourceSpans"][0]["scopeSpans"][0]["spans"] = []
    before, after = json.dumps(request, separators=(",", ":")).split('"spans":[]')
    return f'{before}"spans":[{",".join([_encode_span(one) for one in spans])}]{after}\n'


def _encode_span(span: ReadableSpan) -> str:
    context, parent = span.context, span.parent
    parts = [f'{{"traceId":"{context.trace_id:032x}","spanId":"{context.span_id:016x}"']
    if parent is not None:
        parts.append(f'"parentSpanId":"{parent.span_id:016x}"')
    parts += (
        f'"flags":{_flags(parent)},"name":{_quote(span.name)},"kind":{span.kind.value + 1}',
        f'"startTimeUnixNano":"{span.start_time}","endTimeUnixNano":"{span.end_time}"',
    )
    if span.attributes:
        parts.append(f'"attributes":[{_encode_attributes(span.attributes)}]')
    if span.dropped_attributes:
        parts.append(f'"droppedAttributesCount":{span.dropped_attributes}')
    if span.links:
        parts.append(f'"links":[{",".join([_encode_link(one.context) for one in span.links])}]')
    parts.append(f'"status":{_encode_status(span)}}}')
    return ",".join(parts)


def _encode_status(span: ReadableSpan) -> str:
    status = span.status
    if status.is_unset:
        return "{}"
    said = f'"message":{_quote(status.description)},' if status.description else ""
    return f'{{{said}"code":{status.status_code.value}}}'


def _flags(context: "SpanContext | None") -> int:
    return _HAS_IS_REMOTE_FLAG | (_IS_REMOTE_FLAG if context is not None and context.is_remote else 0)


def _encode_link(context: "SpanContext") -> str:
    """As we make them, without attributes."""
    return f'{{"traceId":"{context.trace_id:032x}","spanId":"{context.span_id:016x}","flags":{_flags(context)}}}'


def _encode_attributes(attributes: "Mapping[str, AttributeValue]") -> str:
    return ",".join(
        [
            _encode_text_attribute(name, value)
            if type(value) is str
            else f'{{"key":{_quote(name)},"value":{_encode_value(value)}}}'
            for name, value in attributes.items()
        ]
    )


@lru_cache(_CACHE_SIZE)
def _encode_text_attribute(name: str, value: str) -> str:
    return f'{{"key":{_quote(name)},"value":{{"stringValue":{_quote(value)}}}}}'


def _encode_value(value: "AttributeValue") -> str:
    match value:
        case str():
            return f'{{"stringValue":{_quote(value)}}}'
        case bool():
            return f'{{"boolValue":{"true" if value else "false"}}}'
        case int():
            return f'{{"intValue":"{value}"}}'
        case float():
            return f'{{"doubleValue":{value if math.isfinite(value) else _NOT_FINITE[str(value)]}}}'
        case _ if not value:
            return '{"arrayValue":{}}'
        case _:
            return f'{{"arrayValue":{{"values":[{",".join([_encode_value(one) for one in value])}]}}}}'
