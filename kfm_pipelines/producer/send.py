"""Sends FIFO envelopes, to a topic or straight to a queue, relying on deduplication by content.

No deduplication id is given: the body is all that tells two events apart, for SQS as for us, so a send that is repeated
within five minutes, here or by whoever calls, is delivered once.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kfm_pipelines.aws.batches import Outgoing, RefusedMessage, split_batches
from kfm_pipelines.errors import ProducerMistaken, SendIncomplete
from kfm_pipelines.producer.envelope import Envelope, outgoing_message, require_valid_group

DEDUPLICATION_WINDOW_SECONDS = 300.0  # in which SQS tells equal bodies


class FifoTarget(Protocol):
    """A FIFO topic or a FIFO queue."""

    name: str

    def send_batch(self, batch: Sequence[Outgoing]) -> list[RefusedMessage]: ...


class FifoProducer:
    """`on_window_hit` is called for each message whose body this producer has sent within five minutes before: it is
    taken, and not delivered again."""

    def __init__(self, target: FifoTarget, on_window_hit: Callable[[], None] = lambda: None) -> None:
        self._target = target
        self._on_window_hit = on_window_hit
        self._sent_at: dict[bytes, float] = {}

    def send(self, event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> None:
        """Send one event; its pipeline is its group unless told otherwise. See `outgoing` for `routing`."""
        self.send_all([outgoing_message(event, group, routing)])

    def send_all(self, messages: Sequence[Outgoing]) -> None:
        """Send all, in order. What was not taken is tried once more, after the others, and then named."""
        for message in messages:
            require_valid_group(message.group)
        everything = dict(enumerate(messages))
        refused = self._send(everything)
        passing = {one.position: everything[one.position] for one in refused if not one.permanent}
        left = [one for one in refused if one.permanent] + self._send(passing)
        lost = {one.position for one in left}
        self._remember_bodies(message.body for position, message in everything.items() if position not in lost)
        if left:
            raise _send_error(self._target.name, len(messages), left)

    def _remember_bodies(self, bodies: Iterable[str]) -> None:
        """Each body that was taken, for as long as SQS remembers it. One within the window does not begin it anew."""
        now = time.monotonic()
        while (
            self._sent_at and now - next(iter(self._sent_at.values())) >= DEDUPLICATION_WINDOW_SECONDS
        ):  # the earliest comes first
            del self._sent_at[next(iter(self._sent_at))]
        for body in bodies:
            digest = hashlib.sha256(body.encode()).digest()
            if digest in self._sent_at:
                self._on_window_hit()
            else:
                self._sent_at[digest] = now

    def _send(self, messages: Mapping[int, Outgoing]) -> list[RefusedMessage]:
        refused: list[RefusedMessage] = []
        for batch in split_batches(messages):
            positions = list(batch)
            answer = self._target.send_batch(list(batch.values()))
            refused += [RefusedMessage(positions[one.position], one.code, one.permanent) for one in answer]
        return refused


def _send_error(name: str, sent: int, left: Sequence[RefusedMessage]) -> ProducerMistaken | SendIncomplete:
    ordered = sorted(left, key=lambda one: one.position)
    which = ", ".join(f"number {one.position + 1} ({one.code})" for one in ordered)
    sentence = f"{name} did not take {len(left)} of {sent} messages: {which}"
    if all(one.permanent for one in left):
        return ProducerMistaken(sentence)
    return SendIncomplete(sentence, tuple(one.position for one in ordered))
