"""Sends FIFO envelopes, to a topic or straight to a queue, relying on deduplication by content.

No deduplication id is given: the body is all that tells two events apart, for SQS as for us, so a send that is repeated
within five minutes, here or by whoever calls, is delivered once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kfm_pipelines.errors import ProducerMistaken, SendIncomplete
from kfm_pipelines.events.fifo import Envelope, Outgoing, checked_group, outgoing
from kfm_pipelines.messaging.batches import Refused, batches


class Carrier(Protocol):
    """A FIFO topic or a FIFO queue."""

    name: str

    def send_batch(self, batch: Sequence[Outgoing]) -> list[Refused]: ...


class FifoProducer:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def send(self, event: Envelope, group: str | None = None, routing: Sequence[str] = ()) -> None:
        """Send one event; its pipeline is its group unless told otherwise. See `outgoing` for `routing`."""
        self.send_all([outgoing(event, group, routing)])

    def send_all(self, messages: Sequence[Outgoing]) -> None:
        """Send all, in order. What was not taken is tried once more, after the others, and then named."""
        for message in messages:
            checked_group(message.group)
        everything = dict(enumerate(messages))
        refused = self._send(everything)
        passing = {one.position: everything[one.position] for one in refused if not one.for_good}
        left = [one for one in refused if one.for_good] + self._send(passing)
        if left:
            raise _not_taken(self._carrier.name, len(messages), left)

    def _send(self, messages: Mapping[int, Outgoing]) -> list[Refused]:
        refused: list[Refused] = []
        for batch in batches(messages):
            positions = list(batch)
            answer = self._carrier.send_batch(list(batch.values()))
            refused += [Refused(positions[one.position], one.code, one.for_good) for one in answer]
        return refused


def _not_taken(name: str, sent: int, left: Sequence[Refused]) -> ProducerMistaken | SendIncomplete:
    ordered = sorted(left, key=lambda one: one.position)
    which = ", ".join(f"number {one.position + 1} ({one.code})" for one in ordered)
    sentence = f"{name} did not take {len(left)} of {sent} messages: {which}"
    if all(one.for_good for one in left):
        return ProducerMistaken(sentence)
    return SendIncomplete(sentence, tuple(one.position for one in ordered))
