"""A trace's context: read from what senders say, or found from the event itself, the same by everybody."""

import pytest

from kfm_pipelines.telemetry.traces.context import TraceContext

SAID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_what_a_sender_says_is_read_and_said_again() -> None:
    context = TraceContext.parse(SAID)
    assert context is not None
    assert (context.trace_hex, f"{context.span_id:016x}") == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert context.traceparent == SAID


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "rubbish",
        SAID + "\n",
        SAID.upper(),
        SAID.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        SAID + "-more",
        "00-" + "a" * 100_000,
    ],
)
def test_what_cannot_be_used_says_nothing(said: str | None) -> None:
    assert TraceContext.parse(said) is None


def test_an_event_has_the_same_trace_for_everybody_who_knows_it() -> None:
    """A golden vector: producers in other languages find it as sha256("kfm-trace-1:" + identity)."""
    assert TraceContext.of_event("a" * 64).traceparent == ("00-a6b2c7b2cd92012a186d5ffb2dbb8392-f31eff820d896022-01")
    assert TraceContext.of_event("a" * 64) != TraceContext.of_event("b" * 64)
