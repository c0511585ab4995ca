"""Spans as a line of OTLP's JSON.

The library's encoder builds an object for each attribute of each span, which took more of the time of a run than all
else that is told in it. What surrounds the spans is still of its making, and tests hold what is made here against it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext
    from opentelemetry.util.types import AttributeValue

# Of OTLP: that a span says whether its parent is remote, and that it is.
_SAYS_WHETHER_REMOTE = 0x100
_IS_REMOTE = 0x200
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def line_of(spans: Sequence[ReadableSpan]) -> str:
    """Of one tracer, so that the first one's surroundings are those of all."""
    request = encode_spans(spans[:1]).to_dict()
    request["resourceSpans"][0]["scopeSpans"][0]["spans"] = [_span(one) for one in spans]
    return json.dumps(request, separators=(",", ":")) + "\n"


def _span(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.context, span.parent
    told: dict[str, Any] = {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}
    if parent is not None:
        told["parentSpanId"] = f"{parent.span_id:016x}"
    told |= {
        "flags": _flags(parent),
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "status": {},
    }
    if span.attributes:
        told["attributes"] = _attributes(span.attributes)
    if span.dropped_attributes:
        told["droppedAttributesCount"] = span.dropped_attributes
    if span.links:
        told["links"] = [_link(one.context) for one in span.links]
    if not span.status.is_unset:
        told["status"] = {"code": span.status.status_code.value}
        if span.status.description:
            told["status"]["message"] = span.status.description
    return told


def _flags(context: "SpanContext | None") -> int:
    return _SAYS_WHETHER_REMOTE | (_IS_REMOTE if context is not None and context.is_remote else 0)


def _link(context: "SpanContext") -> dict[str, Any]:
    """As we make them, without attributes."""
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "flags": _flags(context),
    }


def _attributes(attributes: "Mapping[str, AttributeValue]") -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: "AttributeValue") -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
        case _:
            return {"arrayValue": {"values": [_value(one) for one in value]} if value else {}}
