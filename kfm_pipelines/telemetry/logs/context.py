"""The fields that join log lines with each other and with the database, the spans and the queue."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TypedDict, Unpack


class CorrelationFields(TypedDict, total=False):
    message_id: str | None
    object_key: str | None
    run_id: str | None
    idempotency_key: str | None
    trace_id: str | None
    event_id: str | None
    replay_id: str | None
    dataset: str | None
    stage: str | None
    queue: str | None


CORRELATION_FIELDS = frozenset(CorrelationFields.__annotations__)


class LogContext:
    """One layer of fields, bound while it is entered."""

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.fields = fields

    def __enter__(self) -> None:
        _layers.set((*_layers.get(), self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not back to what was there on entering: a generator may be left before or after whoever it was used by.
        _layers.set(tuple(layer for layer in _layers.get() if layer is not self))


_layers: ContextVar[tuple[LogContext, ...]] = ContextVar("log_fields", default=())


def log_context(**fields: Unpack[CorrelationFields]) -> LogContext:
    """Bind these fields for everything that is logged inside; within it more can be bound, or others for a while."""
    if not fields.keys() <= CORRELATION_FIELDS:
        raise TypeError(f"log lines are joined by {', '.join(sorted(CORRELATION_FIELDS))}, not by {', '.join(fields)}")
    return LogContext({name: value for name, value in fields.items() if value is not None})


def bound_fields() -> dict[str, object]:
    """What is bound here, the innermost last word."""
    bound: dict[str, object] = {}
    for layer in _layers.get():
        bound.update(layer.fields)
    return bound
