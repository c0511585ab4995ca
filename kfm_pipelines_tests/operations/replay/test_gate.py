"""The replay gate: which keys are set aside, and when the whole replay stops."""

from kfm_pipelines.operations.replay.gate import KeyAttempts, ReplayGate

GATE = ReplayGate(max_attempts=3, quarantine_percent=10)


def failed(number: int, times: int) -> list[KeyAttempts]:
    return [KeyAttempts(f"bad-{n}", times, has_outcome=False, reason=f"reason {n}") for n in range(number)]


def settled(number: int) -> list[KeyAttempts]:
    return [KeyAttempts(f"good-{n}", 0, has_outcome=True) for n in range(number)]


def test_a_key_is_set_aside_after_its_last_attempt_and_not_before() -> None:
    ruling = GATE.judge([*settled(20), *failed(1, 2)], 0, more_to_come=True)
    assert (ruling.quarantined, ruling.stop_reason) == ((), None)
    ruling = GATE.judge([*settled(20), *failed(1, 3)], 0, more_to_come=True)
    assert ([one.key for one in ruling.quarantined], ruling.stop_reason) == (["bad-0"], None)


def test_what_succeeded_in_the_end_is_not_set_aside() -> None:
    ruling = GATE.judge([KeyAttempts("late", 3, has_outcome=True)], 0, more_to_come=True)
    assert (ruling.quarantined, ruling.stop_reason) == ((), None)


def test_too_many_set_aside_stop_it_with_the_last_reason() -> None:
    assert GATE.judge([*settled(18), *failed(2, 3)], 0, more_to_come=True).stop_reason is None  # just as many as may be
    ruling = GATE.judge([*settled(17), *failed(2, 3)], 0, more_to_come=True)
    assert ruling.stop_reason == "2 of 19 keys are in quarantine, more than 10 %; the last one: reason 1"


def test_those_set_aside_before_count() -> None:
    assert GATE.judge(settled(8), 1, more_to_come=True).stop_reason is not None
    assert GATE.judge(settled(9), 1, more_to_come=True).stop_reason is None


def test_it_stops_at_once_when_nothing_works() -> None:
    assert GATE.judge(failed(4, 1), 0, more_to_come=True).stop_reason is None
    ruling = GATE.judge(failed(5, 1), 0, more_to_come=True)
    assert ruling.stop_reason == "none of the first 5 keys succeeded; the last one: reason 4"
    assert GATE.judge([*failed(5, 1), *settled(1)], 0, more_to_come=True).stop_reason is None


def test_what_was_handed_back_because_of_others_is_no_failure() -> None:
    handed_back = [KeyAttempts(f"neighbour-{n}", 0, has_outcome=False) for n in range(100)]
    assert GATE.judge([*failed(5, 1), *handed_back], 0, more_to_come=True).stop_reason is None
    assert GATE.judge([*failed(5, 3), *handed_back], 0, more_to_come=True).stop_reason is None


def test_with_nothing_more_to_come_there_is_nothing_to_stop() -> None:
    ruling = GATE.judge(failed(6, 3), 0, more_to_come=False)
    assert (len(ruling.quarantined), ruling.stop_reason) == (6, None)
