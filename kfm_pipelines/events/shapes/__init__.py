"""Every message shape the pipeline listens to, and the one door they all come through.

A new shape is a module with `matches(document)` and `read(document)`, a contract, and a line in OBJECT_SHAPES. The
first shape that matches reads the document, so `matches` looks only at what makes the shape recognisable, not at
whether it is whole: a broken message of a known shape should be refused as that shape.
"""

from collections.abc import Mapping

from kfm_pipelines.errors import ShapeUnknown
from kfm_pipelines.events.body import read_body
from kfm_pipelines.events.notice import Notice
from kfm_pipelines.events.shapes import fifo_envelope, sns
from kfm_pipelines.events.shapes.registry import shape_of
from kfm_pipelines.text import quote_value


def normalise(text: str | bytes) -> tuple[Notice, ...]:
    """What a queue message says, as notices; none for a control message; MessageRefused for anything else."""
    document = _require_object(read_body(text))
    if sns.is_control(document):
        return ()
    if sns.is_notification(document):
        document = _require_object(sns.unwrap(document))
    return _read_document(document)


def _read_document(document: Mapping[str, object]) -> tuple[Notice, ...]:
    if shape := shape_of(document):
        return shape.read(document)
    if fifo_envelope.matches(document):
        return fifo_envelope.read(document)
    names = ", ".join(quote_value(name) for name in sorted(document)[:8]) or "none"
    more = f" and {len(document) - 8} more" if len(document) > 8 else ""
    raise ShapeUnknown(f"message has no known shape; its top-level fields are {names}{more}")


def _require_object(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise ShapeUnknown(f"message must be a JSON object, not {quote_value(document)}")
    return document
