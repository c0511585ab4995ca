"""Buckets, topics, subscriptions and queues against the required topology."""

import json
from collections.abc import Iterator, Mapping
from functools import partial

from kfm_pipelines.aws.buckets import is_versioned, missing_events, notifications_of
from kfm_pipelines.aws.clients import MAX_CALL_SECONDS
from kfm_pipelines.aws.emulated_provider import is_emulated
from kfm_pipelines.aws.policies import open_statements, with_statement
from kfm_pipelines.aws.provision import account_of, store_bucket
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.aws.topics import get_subscription, provider_subscription, subscriptions_of, topic_attributes
from kfm_pipelines.aws.topology import (
    AwsAccount,
    QueueSpec,
    SubscriptionSpec,
    TopicSpec,
    own_buckets,
    required_topology,
)
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.inbox.drain import MAX_DRAIN_SECONDS
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorCheck, DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import CONNECTION_SECONDS, LOCK_SECONDS

# A tick receives messages, records them, then deletes them; they must stay hidden that long.
MAX_HOLD_SECONDS = int(MAX_DRAIN_SECONDS) + CONNECTION_SECONDS + LOCK_SECONDS + MAX_CALL_SECONDS
MIN_RETENTION_SECONDS = 4 * 24 * 3600
MIN_RECEIVES, MAX_RECEIVES = 3, 10

Attributes = Mapping[str, str]


def topology_checks(services: Services) -> Iterator[DoctorCheck]:
    wanted = required_topology(services.settings, services.datasets)
    for bucket in own_buckets(services.datasets):
        yield f"bucket {bucket}", partial(_bucket_findings, services, bucket)
    for topic in wanted.topics:
        yield f"topic {topic.name}", partial(_topic_findings, services, topic)
    for one in wanted.subscriptions:
        label = f"subscription of {one.queue} to {one.topic}"
        yield label, partial(_subscription_findings, services, one, label)
    for queue in wanted.queues:
        if queue.dead_letter_queue is not None:
            yield f"queue {queue.name}", partial(_queue_findings, queue, queue.dead_letter_queue)


def store_bucket_findings(services: Services) -> Iterator[DoctorFinding]:
    for bucket in store_bucket(services.settings):
        yield _check_versioning(bucket)


def _bucket_findings(services: Services, bucket: str) -> Iterator[DoctorFinding]:
    yield _check_versioning(bucket)
    topic = _site_account(services).topic_arn(services.settings.topic)
    notifications = notifications_of(bucket)
    for dataset in services.datasets.values():
        if dataset.input.bucket == bucket and dataset.input.provider is None:
            missing = missing_events(notifications, topic, dataset.input.prefix)
            found = f"not announced: {', '.join(missing)}" if missing else "announced"
            check = f"notices of {bucket} for {dataset.dataset}"
            yield DoctorFinding(check, ok=not missing, found=found, remedy=FIX_REMEDY)


def _check_versioning(bucket: str) -> DoctorFinding:
    versioned = is_versioned(bucket)
    found = "versioned" if versioned else "not versioned"
    return DoctorFinding(f"bucket {bucket}", ok=versioned, found=found, remedy=FIX_REMEDY)


def _topic_findings(services: Services, spec: TopicSpec) -> Iterator[DoctorFinding]:
    account = _site_account(services)
    attributes = topic_attributes(account.topic_arn(spec.name))
    if attributes is None:
        yield DoctorFinding(f"topic {spec.name}", ok=False, found="missing", remedy=FIX_REMEDY)
        return
    wrong = [f"{name} is not {value}" for name, value in spec.settings().items() if attributes.get(name) != value]
    yield DoctorFinding(f"topic {spec.name}", ok=not wrong, found=", ".join(wrong) or "exists", remedy=FIX_REMEDY)
    yield _check_publishers(spec, account, attributes.get("Policy", ""))


def _check_publishers(spec: TopicSpec, account: AwsAccount, policy: str) -> DoctorFinding:
    check = f"policy of topic {spec.name}"
    if opened := open_statements(policy, "sns:Publish"):
        found = f"anyone may publish: statement {', '.join(opened)}"
        remedy = "remove it from the topic's policy, or restrict it by aws:SourceArn"
        return DoctorFinding(check, ok=False, found=found, remedy=remedy)
    statement = spec.statement(account)
    if with_statement(policy, statement) is not None:
        return DoctorFinding(check, ok=False, found="the declared buckets may not publish", remedy=FIX_REMEDY)
    return DoctorFinding(check, ok=True, found="only the declared buckets" if statement else "only this account")


def _subscription_findings(services: Services, spec: SubscriptionSpec, label: str) -> Iterator[DoctorFinding]:
    account = _site_account(services)
    queue = account.queue_arn(spec.queue)
    if spec.of_provider:
        arn, remedy = provider_subscription(spec.topic, queue), f"{FIX_REMEDY}, if the provider's topic allows it"
    else:
        arn, remedy = subscriptions_of(account.topic_arn(spec.topic)).get(queue), FIX_REMEDY
    if arn is None:
        unplayed = spec.of_provider and is_emulated()
        found = "no provider on the embedded stack until `kfm emit` plays it" if unplayed else "missing"
        yield DoctorFinding(label, ok=unplayed, found=found, remedy="" if unplayed else remedy)
        return
    current = get_subscription(arn)
    found = f"{'raw' if current.raw else 'wrapped'}, filter {current.filter_policy or 'none'}"
    wanted_filter = json.dumps(spec.filter_policy) if spec.filter_policy else "none"
    remedy = f"it should be {'raw' if spec.raw else 'wrapped'} with filter {wanted_filter}; {FIX_REMEDY}"
    yield DoctorFinding(label, ok=current.matches(spec), found=found, remedy=remedy)


def _queue_findings(spec: QueueSpec, dead_letter_queue: str) -> Iterator[DoctorFinding]:
    queue = Queue(spec.name)
    attributes = queue.attributes()
    account = account_of(queue.url)
    yield _check_visibility(spec.name, attributes)
    yield _check_retention(spec.name, attributes)
    yield _check_redrive(spec.name, dead_letter_queue, attributes, account)
    yield _check_senders(spec, attributes.get("Policy", ""), account)
    if spec.fifo:
        yield _check_fifo(spec.name, attributes)
    dead_letters = Queue(dead_letter_queue).attributes()
    yield _check_dead_letter_retention(spec, attributes, dead_letters)
    if spec.fifo:
        yield _check_fifo(dead_letter_queue, dead_letters)


def _check_visibility(name: str, attributes: Attributes) -> DoctorFinding:
    seconds, check = int(attributes["VisibilityTimeout"]), f"visibility timeout of {name}"
    remedy = f"set it above {MAX_HOLD_SECONDS} s, or messages reappear while they are recorded; or {FIX_REMEDY}"
    return DoctorFinding(check, ok=seconds > MAX_HOLD_SECONDS, found=f"{seconds} s", remedy=remedy)


def _check_retention(name: str, attributes: Attributes) -> DoctorFinding:
    seconds, check = int(attributes["MessageRetentionPeriod"]), f"retention of {name}"
    remedy = f"set it to 4 days or more, so that a long weekend without a consumer loses nothing; or {FIX_REMEDY}"
    return DoctorFinding(check, ok=seconds >= MIN_RETENTION_SECONDS, found=_format_days(seconds), remedy=remedy)


def _check_redrive(name: str, dead_letter_queue: str, attributes: Attributes, account: AwsAccount) -> DoctorFinding:
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    check = f"dead-letter queue of {name}"
    target, receives = policy.get("deadLetterTargetArn"), int(policy.get("maxReceiveCount", 0))
    if target is None:
        return DoctorFinding(check, ok=False, found="none", remedy=f"set a redrive policy; or {FIX_REMEDY}")
    if target != account.queue_arn(dead_letter_queue):
        remedy = f"it should be {dead_letter_queue}, which redrives read; {FIX_REMEDY}"
        return DoctorFinding(check, ok=False, found=target, remedy=remedy)
    remedy = (
        f"set maxReceiveCount from {MIN_RECEIVES} to {MAX_RECEIVES}: fewer gives up on messages that would "
        f"succeed, more repeats those that never will; or {FIX_REMEDY}"
    )
    found = f"{dead_letter_queue} after {receives} receives"
    return DoctorFinding(check, ok=MIN_RECEIVES <= receives <= MAX_RECEIVES, found=found, remedy=remedy)


def _check_senders(spec: QueueSpec, policy: str, account: AwsAccount) -> DoctorFinding:
    check = f"policy of {spec.name}"
    if opened := open_statements(policy, "sqs:SendMessage"):
        remedy = "remove it from the queue's policy, or restrict it by aws:SourceArn"
        return DoctorFinding(check, ok=False, found=f"anyone may send: statement {', '.join(opened)}", remedy=remedy)
    if with_statement(policy, spec.statement(account)) is not None:
        return DoctorFinding(check, ok=False, found=f"not open to {', '.join(spec.senders)}", remedy=FIX_REMEDY)
    return DoctorFinding(check, ok=True, found=f"only {', '.join(spec.senders)} may send")


def _check_fifo(name: str, attributes: Attributes) -> DoctorFinding:
    missing = [one for one in ("FifoQueue", "ContentBasedDeduplication") if attributes.get(one) != "true"]
    found = f"{', '.join(missing)} not on" if missing else "deduplicates by content"
    return DoctorFinding(f"FIFO settings of {name}", ok=not missing, found=found, remedy=FIX_REMEDY)


def _check_dead_letter_retention(spec: QueueSpec, attributes: Attributes, dead_letters: Attributes) -> DoctorFinding:
    """Messages moved from a standard queue keep their age, so the dead-letter queue must keep them at least as long."""
    seconds, least = (int(one["MessageRetentionPeriod"]) for one in (dead_letters, attributes))
    found = f"{_format_days(seconds)}, and {_format_days(least)} on {spec.name}"
    remedy = f"make it at least as long as the queue's, or letters expire before anyone reads them; or {FIX_REMEDY}"
    return DoctorFinding(f"retention of {spec.dead_letter_queue}", ok=seconds >= least, found=found, remedy=remedy)


def _site_account(services: Services) -> AwsAccount:
    """Tries every queue: one that is missing must not make topics and buckets look wrong too."""
    for intake in services.intakes:
        try:
            return account_of(intake.queue.url)
        except SettingsInvalid:
            continue
    raise SettingsInvalid("none of the queues exists; `kfm doctor --fix` creates them")


def _format_days(seconds: int) -> str:
    return f"{seconds / 86_400:g} days"
