"""Topics and their subscriptions: reading them, and correcting what differs. Publishes nothing."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from kfm_pipelines.aws.clients import sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.aws.policies import with_statement
from kfm_pipelines.aws.topology import AwsAccount, QueueSpec, SubscriptionSpec, TopicSpec, same_filter


@dataclass(frozen=True, slots=True)
class Subscription:
    arn: str
    raw: bool
    filter_policy: str

    def matches(self, spec: SubscriptionSpec) -> bool:
        return self.raw == spec.raw and same_filter(self.filter_policy, spec.filter_policy)


def topic_attributes(arn: str) -> dict[str, str] | None:
    """Returns None when there is no such topic."""
    sns = sns_client()
    with translate_aws_errors(f"reading topic {arn}"):
        try:
            return sns.get_topic_attributes(TopicArn=arn)["Attributes"]
        except sns.exceptions.NotFoundException:
            return None


def subscriptions_of(topic_arn: str) -> dict[str, str]:
    """Returns subscription ARNs by the ARN of their queue; none when there is no such topic."""
    sns = sns_client()
    with translate_aws_errors(f"listing the subscriptions of {topic_arn}"):
        try:
            pages = list(sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic_arn))
        except sns.exceptions.NotFoundException:
            return {}
    return {one["Endpoint"]: one["SubscriptionArn"] for page in pages for one in page["Subscriptions"]}


def provider_subscription(topic_arn: str, queue_arn: str) -> str | None:
    """Returns the ARN of our subscription to a topic of another account; None when there is none or no such topic."""
    sns = sns_client(region_of(topic_arn))
    with translate_aws_errors(f"listing our subscriptions to {topic_arn}"):
        try:
            listed = sns.list_subscriptions_by_topic(TopicArn=topic_arn)["Subscriptions"]
        except sns.exceptions.NotFoundException:
            return None
        except sns.exceptions.AuthorizationErrorException:
            listed = []  # few let others list theirs
        pages = sns.get_paginator("list_subscriptions").paginate()
        ours = chain(listed, (one for page in pages for one in page["Subscriptions"]))
        found = (one for one in ours if one["TopicArn"] == topic_arn and one["Endpoint"] == queue_arn)
        return next((one["SubscriptionArn"] for one in found), None)


def region_of(arn: str) -> str:
    return arn.split(":")[3]


def get_subscription(arn: str) -> Subscription:
    with translate_aws_errors(f"reading subscription {arn}"):
        attributes = sns_client(region_of(arn)).get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
    return Subscription(arn, attributes.get("RawMessageDelivery") == "true", attributes.get("FilterPolicy", ""))


def ensure_topic(spec: TopicSpec, account: AwsAccount) -> list[str]:
    """Returns one line for each thing created or changed."""
    arn, done = account.topic_arn(spec.name), []
    current = topic_attributes(arn)
    with translate_aws_errors(f"topic {spec.name}"):
        if current is None:
            sns_client().create_topic(Name=spec.name, Attributes=spec.settings())
            done.append(f"topic {spec.name}")
            current = topic_attributes(arn) or {}
        for name, value in changed_settings(spec, current, account).items():
            sns_client().set_topic_attributes(TopicArn=arn, AttributeName=name, AttributeValue=value)
            done.append(f"topic {spec.name}: {name}")
    return done


def ensure_subscriptions(specs: Sequence[SubscriptionSpec], account: AwsAccount) -> list[str]:
    """Takes the subscriptions of one topic. Returns one line for each that was created or changed."""
    existing = subscriptions_of(account.topic_arn(specs[0].topic)) if specs else {}
    return [line for spec in specs for line in _ensure_subscription(spec, account, existing)]


def ensure_provider_subscription(spec: SubscriptionSpec, account: AwsAccount) -> list[str]:
    """Subscribes our queue. A topic that does not exist or refuses us is left to `kfm doctor`: it is not ours, and the
    other datasets must not wait for it."""
    queue, label = account.queue_arn(spec.queue), f"subscription of {spec.queue} to {spec.topic}"
    sns = sns_client(region_of(spec.topic))
    if provider_subscription(spec.topic, queue) is not None:
        return []
    with (
        translate_aws_errors(label),
        suppress(sns.exceptions.NotFoundException, sns.exceptions.AuthorizationErrorException),
    ):
        sns.subscribe(TopicArn=spec.topic, Protocol="sqs", Endpoint=queue, Attributes=spec.settings())
        return [label]
    return []


def _ensure_subscription(spec: SubscriptionSpec, account: AwsAccount, existing: dict[str, str]) -> list[str]:
    topic, queue = account.topic_arn(spec.topic), account.queue_arn(spec.queue)
    label = f"subscription of {spec.queue} to {spec.topic}"
    with translate_aws_errors(label):
        if queue not in existing:
            sns_client().subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes=spec.settings())
            return [label]
        current = get_subscription(existing[queue])
        if current.matches(spec):
            return []
        # An empty policy removes the filter.
        for name, value in {"FilterPolicy": json.dumps(spec.filter_policy or {}), **spec.settings()}.items():
            sns_client().set_subscription_attributes(
                SubscriptionArn=current.arn, AttributeName=name, AttributeValue=value
            )
    return [f"{label}: filter and delivery"]


def changed_settings(spec: TopicSpec | QueueSpec, current: dict[str, str], account: AwsAccount) -> dict[str, str]:
    """Returns the settings of a topic or queue that differ from those wanted, with its policy."""
    redrive = spec.redrive_settings(account) if isinstance(spec, QueueSpec) else {}
    settings = spec.settings() | redrive
    changed = {name: value for name, value in settings.items() if not _same_setting(current.get(name), value)}
    if (policy := with_statement(current.get("Policy", ""), spec.statement(account))) is not None:
        changed["Policy"] = policy
    return changed


def _same_setting(current: str | None, desired: str) -> bool:
    """Compares JSON by value: AWS reorders it and may write numbers as text."""
    if current is None or not desired.startswith("{"):
        return current == desired
    return {k: str(v) for k, v in json.loads(current).items()} == {k: str(v) for k, v in json.loads(desired).items()}
