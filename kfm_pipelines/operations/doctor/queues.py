"""Queues: patient enough, leading to the right dead-letter queue, and open to nobody but our topics."""

import json
from collections.abc import Iterator, Mapping

from kfm_pipelines.aws.clients import LONGEST_PATIENCE_SECONDS
from kfm_pipelines.aws.policies import open_statements, with_statement
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.aws.queue_settings import place_of
from kfm_pipelines.aws.topology import Place, QueueWanted
from kfm_pipelines.inbox.drain import LONGEST_DRAIN_SECONDS
from kfm_pipelines.operations.doctor.finding import FIX, Finding
from kfm_pipelines.state.database import CONNECTION_SECONDS, LOCK_SECONDS

# A tick collects messages, records them, then deletes them; until then each has to stay hidden, or it comes again.
LONGEST_HOLD_SECONDS = int(LONGEST_DRAIN_SECONDS) + CONNECTION_SECONDS + LOCK_SECONDS + LONGEST_PATIENCE_SECONDS
LEAST_RETENTION_SECONDS = 4 * 24 * 3600
FEWEST_RECEIVES, MOST_RECEIVES = 3, 10

Attributes = Mapping[str, str]


def queue_findings(spec: QueueWanted) -> Iterator[Finding]:
    """One intake queue together with its dead-letter queue."""
    queue = Queue(spec.name)
    attributes = queue.attributes()
    place = place_of(queue.url)
    yield _visibility(spec.name, attributes)
    yield _retention(spec.name, attributes)
    yield _redrive(spec, attributes, place)
    yield _senders(spec, attributes.get("Policy", ""), place)
    if spec.fifo:
        yield _fifo(spec.name, attributes)
    dead_letters = Queue(spec.dead_letter_queue or "").attributes()
    yield _dead_letters_stay(spec, attributes, dead_letters)
    if spec.fifo:
        yield _fifo(spec.dead_letter_queue or "", dead_letters)


def _visibility(name: str, attributes: Attributes) -> Finding:
    seconds = int(attributes["VisibilityTimeout"])
    return Finding(
        f"visibility timeout of {name}",
        ok=seconds > LONGEST_HOLD_SECONDS,
        found=f"{seconds} s",
        remedy=f"set it above {LONGEST_HOLD_SECONDS} s, or messages come again while they are being recorded; or {FIX}",
    )


def _retention(name: str, attributes: Attributes) -> Finding:
    seconds = int(attributes["MessageRetentionPeriod"])
    return Finding(
        f"retention of {name}",
        ok=seconds >= LEAST_RETENTION_SECONDS,
        found=_days(seconds),
        remedy=f"set it to 4 days or more, so that a long weekend without a consumer loses nothing; or {FIX}",
    )


def _redrive(spec: QueueWanted, attributes: Attributes, account: Place) -> Finding:
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    check = f"dead-letter queue of {spec.name}"
    target, receives = policy.get("deadLetterTargetArn"), int(policy.get("maxReceiveCount", 0))
    if target is None:
        return Finding(check, ok=False, found="none", remedy=f"attach one by a redrive policy; or {FIX}")
    if target != account.queue_arn(spec.dead_letter_queue or ""):
        remedy = f"it should be {spec.dead_letter_queue}, where redrive looks; {FIX}"
        return Finding(check, ok=False, found=target, remedy=remedy)
    return Finding(
        check,
        ok=FEWEST_RECEIVES <= receives <= MOST_RECEIVES,
        found=f"{spec.dead_letter_queue} after {receives} receives",
        remedy=f"set maxReceiveCount from {FEWEST_RECEIVES} to {MOST_RECEIVES}: fewer gives up on what would pass, "
        f"more goes round in circles; or {FIX}",
    )


def _senders(spec: QueueWanted, policy: str, account: Place) -> Finding:
    check = f"policy of {spec.name}"
    statement = spec.statement(account)
    if opened := open_statements(policy, "sqs:SendMessage"):
        remedy = "remove it from the queue's policy, or bind it to a source by aws:SourceArn"
        return Finding(check, ok=False, found=f"anybody may send: statement {', '.join(opened)}", remedy=remedy)
    if statement is not None and with_statement(policy, statement) is not None:
        return Finding(check, ok=False, found=f"not open to {', '.join(spec.senders)}", remedy=FIX)
    return Finding(check, ok=True, found=f"only {', '.join(spec.senders)} may send")


def _fifo(name: str, attributes: Attributes) -> Finding:
    missing = [one for one in ("FifoQueue", "ContentBasedDeduplication") if attributes.get(one) != "true"]
    return Finding(
        f"FIFO settings of {name}",
        ok=not missing,
        found=f"{', '.join(missing)} not on" if missing else "deduplicates by content",
        remedy=FIX,
    )


def _dead_letters_stay(spec: QueueWanted, attributes: Attributes, dead_letters: Attributes) -> Finding:
    """A standard queue's letters keep the age they came with, so they need at least as long."""
    seconds, least = (int(one["MessageRetentionPeriod"]) for one in (dead_letters, attributes))
    return Finding(
        f"retention of {spec.dead_letter_queue}",
        ok=seconds >= least,
        found=f"{_days(seconds)}, and {_days(least)} on {spec.name}",
        remedy=f"make it at least as long as the queue's, or letters vanish before anybody reads them; or {FIX}",
    )


def _days(seconds: int) -> str:
    return f"{seconds / 86_400:g} days"
