"""The topics, queues and subscriptions that should exist, and who may send to them. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kfm_pipelines.aws.policies import Statement, allow_statement
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.events.notice import Priority
from kfm_pipelines.settings import Settings

VISIBILITY_SECONDS = 120
DEAD_LETTER_VISIBILITY_SECONDS = 300  # read by people and redrives, not by a tick
RETENTION_SECONDS = 14 * 24 * 3600
RECEIVES_BEFORE_DEAD_LETTER = 5
MAX_FILTER_COMBINATIONS = 150  # SNS refuses a filter policy with more

URGENT_PRIORITIES: tuple[Priority, ...] = ("high",)
ORDINARY_PRIORITIES: tuple[Priority, ...] = ("normal", "low")
FilterPolicy = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """Account and region, from which every ARN follows without a call."""

    partition: str
    region: str
    account_id: str

    def queue_arn(self, name: str) -> str:
        return f"arn:{self.partition}:sqs:{self.region}:{self.account_id}:{name}"

    def topic_arn(self, name: str) -> str:
        """A topic of another account is named by its ARN already."""
        return name if name.startswith("arn:") else f"arn:{self.partition}:sns:{self.region}:{self.account_id}:{name}"

    def bucket_arn(self, name: str) -> str:
        return f"arn:{self.partition}:s3:::{name}"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue and the topics that may send to it; a dead-letter queue has none."""

    name: str
    visibility_seconds: int
    dead_letter_queue: str | None = None
    senders: tuple[str, ...] = ()

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")

    def settings(self) -> dict[str, str]:
        """Settings that are the same in every account."""
        wanted = {
            "VisibilityTimeout": str(self.visibility_seconds),
            "MessageRetentionPeriod": str(RETENTION_SECONDS),
            "ReceiveMessageWaitTimeSeconds": "0",
        }
        return wanted | ({"FifoQueue": "true", "ContentBasedDeduplication": "true"} if self.fifo else {})

    def redrive_settings(self, account: AwsAccount) -> dict[str, str]:
        if self.dead_letter_queue is None:
            return {}
        target = account.queue_arn(self.dead_letter_queue)
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": RECEIVES_BEFORE_DEAD_LETTER}
        return {"RedrivePolicy": json.dumps(policy)}

    def statement(self, account: AwsAccount) -> Statement | None:
        if not self.senders:
            return None
        topics = [account.topic_arn(name) for name in self.senders]
        return allow_statement(
            "kfm-topic", "sns.amazonaws.com", "sqs:SendMessage", account.queue_arn(self.name), topics
        )


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic and the buckets that may publish to it; identities of the account need no statement."""

    name: str
    buckets: tuple[str, ...] = ()

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")

    def settings(self) -> dict[str, str]:
        return {"FifoTopic": "true", "ContentBasedDeduplication": "true"} if self.fifo else {}

    def statement(self, account: AwsAccount) -> Statement | None:
        if not self.buckets:
            return None
        sources = [account.bucket_arn(name) for name in self.buckets]
        return allow_statement("kfm-s3", "s3.amazonaws.com", "sns:Publish", account.topic_arn(self.name), sources)


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """Which messages of a topic reach a queue, and whether raw. No filter means all."""

    topic: str  # a name, or the ARN of a provider's
    queue: str
    raw: bool = False
    filter_policy: FilterPolicy | None = None

    @property
    def of_provider(self) -> bool:
        return self.topic.startswith("arn:")

    def settings(self) -> dict[str, str]:
        wanted = {"RawMessageDelivery": "true" if self.raw else "false"}
        return wanted | ({} if self.filter_policy is None else {"FilterPolicy": json.dumps(self.filter_policy)})


@dataclass(frozen=True, slots=True)
class Topology:
    """Queues come in the order they can be created in."""

    queues: tuple[QueueSpec, ...]
    topics: tuple[TopicSpec, ...]
    subscriptions: tuple[SubscriptionSpec, ...]


def required_topology(settings: Settings, datasets: Datasets) -> Topology:
    """One topic for S3, one for producers that routes by attributes, one for FIFO producers, one for alerts."""
    buckets, feeds = own_buckets(datasets), provider_topics(datasets)
    dead, fifo_dead = settings.dead_letter_queue, settings.fifo_dead_letter_queue
    announced, notices, in_order = settings.topic, settings.notice_topic, settings.fifo_queue
    return Topology(
        queues=(
            QueueSpec(dead, DEAD_LETTER_VISIBILITY_SECONDS),
            QueueSpec(fifo_dead, DEAD_LETTER_VISIBILITY_SECONDS),
            QueueSpec(settings.priority_queue, VISIBILITY_SECONDS, dead, (notices,)),
            QueueSpec(settings.queue, VISIBILITY_SECONDS, dead, (announced, notices, *feeds)),
            QueueSpec(settings.fifo_queue, VISIBILITY_SECONDS, fifo_dead, (in_order,)),
        ),
        topics=(
            TopicSpec(announced, buckets),
            TopicSpec(notices),
            TopicSpec(in_order),
            TopicSpec(settings.alert_topic),  # the operator subscribes to it
        ),
        subscriptions=(
            # S3's notices carry no attributes, so no filter policy would match them.
            SubscriptionSpec(announced, settings.queue),
            SubscriptionSpec(
                notices, settings.priority_queue, filter_policy=filter_policy(datasets, URGENT_PRIORITIES)
            ),
            SubscriptionSpec(notices, settings.queue, filter_policy=filter_policy(datasets, ORDINARY_PRIORITIES)),
            SubscriptionSpec(in_order, settings.fifo_queue, raw=True),
            *(SubscriptionSpec(feed, settings.queue) for feed in feeds),
        ),
    )


def own_buckets(datasets: Datasets) -> tuple[str, ...]:
    """Returns the buckets that are ours to create, version and announce."""
    inputs = [one.input for one in datasets.values() if one.input.provider is None and not one.input.upstream]
    return tuple(sorted({one.bucket for one in inputs}))


def provider_topics(datasets: Datasets) -> tuple[str, ...]:
    return tuple(sorted({one.input.provider.topic for one in datasets.values() if one.input.provider is not None}))


def filter_policy(datasets: Datasets, priorities: Sequence[Priority]) -> FilterPolicy:
    """Drops the least selective field when SNS would refuse the policy: every message is checked again."""
    routed = [dataset for dataset in datasets.values() if not dataset.input.upstream]
    wanted: dict[str, list[str]] = {
        "product": sorted({dataset.product for dataset in routed}),
        "dataset": sorted(dataset.dataset for dataset in routed),
        "priority": list(priorities),
    }
    for field in ("product", "dataset"):
        if prod(map(len, wanted.values())) > MAX_FILTER_COMBINATIONS or not wanted[field]:
            del wanted[field]
    return wanted


def same_filter(current: str | None, desired: FilterPolicy | None) -> bool:
    """Compares with what SNS returns, which may list fields and values in any order."""
    return _normalise_filter(json.loads(current or "{}")) == _normalise_filter(desired or {})


def _normalise_filter(policy: FilterPolicy) -> dict[str, list[str]]:
    return {name: sorted(map(str, values)) for name, values in policy.items()}
