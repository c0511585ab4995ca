"""Queues: patient enough, leading to the right dead-letter queue, and open to nobody but our topics."""

import json
from collections.abc import Iterator, Mapping

from kfm_pipelines.aws.clients import MAX_CALL_SECONDS
from kfm_pipelines.aws.policies import open_statements, with_statement
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.aws.queue_settings import account_of
from kfm_pipelines.aws.topology import AwsAccount, QueueSpec
from kfm_pipelines.inbox.drain import MAX_DRAIN_SECONDS
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorFinding
from kfm_pipelines.state.database import CONNECTION_SECONDS, LOCK_SECONDS

# A tick collects messages, records them, then deletes them; until then each has to stay hidden, or it comes again.
MAX_HOLD_SECONDS = int(MAX_DRAIN_SECONDS) + CONNECTION_SECONDS + LOCK_SECONDS + MAX_CALL_SECONDS
MIN_RETENTION_SECONDS = 4 * 24 * 3600
MIN_RECEIVES, MAX_RECEIVES = 3, 10

Attributes = Mapping[str, str]


def queue_findings(spec: QueueSpec) -> Iterator[DoctorFinding]:
    """One intake queue together with its dead-letter queue."""
    queue = Queue(spec.name)
    attributes = queue.attributes()
    place = account_of(queue.url)
    yield _check_visibility(spec.name, attributes)
    yield _check_retention(spec.name, attributes)
    yield _check_redrive(spec, attributes, place)
    yield _check_senders(spec, attributes.get("Policy", ""), place)
    if spec.fifo:
        yield _check_fifo(spec.name, attributes)
    dead_letters = Queue(spec.dead_letter_queue or "").attributes()
    yield _check_dead_letter_retention(spec, attributes, dead_letters)
    if spec.fifo:
        yield _check_fifo(spec.dead_letter_queue or "", dead_letters)


def _check_visibility(name: str, attributes: Attributes) -> DoctorFinding:
    seconds = int(attributes["VisibilityTimeout"])
    return DoctorFinding(
        f"visibility timeout of {name}",
        ok=seconds > MAX_HOLD_SECONDS,
        found=f"{seconds} s",
        remedy=f"set it above {MAX_HOLD_SECONDS} s, or messages come again while they are being recorded; or {FIX_REMEDY}",
    )


def _check_retention(name: str, attributes: Attributes) -> DoctorFinding:
    seconds = int(attributes["MessageRetentionPeriod"])
    return DoctorFinding(
        f"retention of {name}",
        ok=seconds >= MIN_RETENTION_SECONDS,
        found=_format_days(seconds),
        remedy=f"set it to 4 days or more, so that a long weekend without a consumer loses nothing; or {FIX_REMEDY}",
    )


def _check_redrive(spec: QueueSpec, attributes: Attributes, account: AwsAccount) -> DoctorFinding:
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    check = f"dead-letter queue of {spec.name}"
    target, receives = policy.get("deadLetterTargetArn"), int(policy.get("maxReceiveCount", 0))
    if target is None:
        return DoctorFinding(check, ok=False, found="none", remedy=f"attach one by a redrive policy; or {FIX_REMEDY}")
    if target != account.queue_arn(spec.dead_letter_queue or ""):
        remedy = f"it should be {spec.dead_letter_queue}, where redrive looks; {FIX_REMEDY}"
        return DoctorFinding(check, ok=False, found=target, remedy=remedy)
    return DoctorFinding(
        check,
        ok=MIN_RECEIVES <= receives <= MAX_RECEIVES,
        found=f"{spec.dead_letter_queue} after {receives} receives",
        remedy=f"set maxReceiveCount from {MIN_RECEIVES} to {MAX_RECEIVES}: fewer gives up on what would pass, "
        f"more goes round in circles; or {FIX_REMEDY}",
    )


def _check_senders(spec: QueueSpec, policy: str, account: AwsAccount) -> DoctorFinding:
    check = f"policy of {spec.name}"
    statement = spec.statement(account)
    if opened := open_statements(policy, "sqs:SendMessage"):
        remedy = "remove it from the queue's policy, or bind it to a source by aws:SourceArn"
        return DoctorFinding(check, ok=False, found=f"anybody may send: statement {', '.join(opened)}", remedy=remedy)
    if statement is not None and with_statement(policy, statement) is not None:
        return DoctorFinding(check, ok=False, found=f"not open to {', '.join(spec.senders)}", remedy=FIX_REMEDY)
    return DoctorFinding(check, ok=True, found=f"only {', '.join(spec.senders)} may send")


def _check_fifo(name: str, attributes: Attributes) -> DoctorFinding:
    missing = [one for one in ("FifoQueue", "ContentBasedDeduplication") if attributes.get(one) != "true"]
    return DoctorFinding(
        f"FIFO settings of {name}",
        ok=not missing,
        found=f"{', '.join(missing)} not on" if missing else "deduplicates by content",
        remedy=FIX_REMEDY,
    )


def _check_dead_letter_retention(spec: QueueSpec, attributes: Attributes, dead_letters: Attributes) -> DoctorFinding:
    """A standard queue's letters keep the age they came with, so they need at least as long."""
    seconds, least = (int(one["MessageRetentionPeriod"]) for one in (dead_letters, attributes))
    return DoctorFinding(
        f"retention of {spec.dead_letter_queue}",
        ok=seconds >= least,
        found=f"{_format_days(seconds)}, and {_format_days(least)} on {spec.name}",
        remedy=f"make it at least as long as the queue's, or letters vanish before anybody reads them; or {FIX_REMEDY}",
    )


def _format_days(seconds: int) -> str:
    return f"{seconds / 86_400:g} days"
