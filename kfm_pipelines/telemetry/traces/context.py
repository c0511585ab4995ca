"""Where in a trace something happens, so that it can be carried along: by a message, a row, a run.

An event that comes without a context, as S3's notices do, has one that is made from its identity: whoever knows the
event, producer or consumer, finds the same trace without telling each other.
"""

import hashlib
import re
from dataclasses import dataclass

TRACEPARENT = "traceparent"  # what a message's attribute is called that holds one
# W3C: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace."""

    trace_id: int
    span_id: int

    @classmethod
    def parse(cls, traceparent: str | None) -> "TraceContext | None":
        """What a traceparent says; None when it says nothing that could be used."""
        found = _TRACEPARENT.fullmatch(traceparent or "")
        if found is None or not int(found[1], 16) or not int(found[2], 16):
            return None
        return cls(int(found[1], 16), int(found[2], 16))

    @classmethod
    def of_event(cls, identity: str) -> "TraceContext":
        """The first span of an event's own trace."""
        digest = hashlib.sha256(f"kfm-trace-1:{identity}".encode()).digest()
        return cls(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_hex}-{self.span_id:016x}-01"

    @property
    def trace_hex(self) -> str:
        return f"{self.trace_id:032x}"
