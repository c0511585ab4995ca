"""Creates what is missing and corrects what differs. Safe to run at any time, twice, or by two processes at once."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from kfm_pipelines.aws.buckets import ensure_bucket, ensure_notifications
from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.aws.topics import (
    changed_settings,
    ensure_provider_subscription,
    ensure_subscriptions,
    ensure_topic,
)
from kfm_pipelines.aws.topology import AwsAccount, QueueSpec, own_buckets, provider_topics, required_topology
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.settings import Settings


def provision(settings: Settings, datasets: Datasets) -> list[str]:
    """Returns one line for each thing created or changed; none when everything was in place."""
    done = [line for bucket in store_bucket(settings) for line in ensure_bucket(bucket)]
    return done + _provision_inputs(settings, datasets, own_buckets(datasets), provider_topics(datasets))


def provision_input(settings: Settings, datasets: Datasets, dataset: Dataset) -> list[str]:
    """Provisions what one of the datasets needs to receive objects. Nothing of a provider's is created."""
    one = Datasets({dataset.dataset: dataset})
    return _provision_inputs(settings, datasets, own_buckets(one), provider_topics(one))


def _provision_inputs(
    settings: Settings, datasets: Datasets, buckets: Sequence[str], feeds: Sequence[str]
) -> list[str]:
    """The queues and topics are shared, and the notices of a bucket are one setting: those depend on all datasets."""
    wanted = required_topology(settings, datasets)
    done = [line for bucket in buckets for line in ensure_bucket(bucket)]
    queues = [_ensure_queue(queue) for queue in wanted.queues]
    account = queues[0][0]
    done += [line for _, lines in queues for line in lines]
    for topic in wanted.topics:
        done += ensure_topic(topic, account)
    for topic in wanted.topics:
        done += ensure_subscriptions([one for one in wanted.subscriptions if one.topic == topic.name], account)
    for one in wanted.subscriptions:
        if one.of_provider and one.topic in feeds:
            done += ensure_provider_subscription(one, account)
    for bucket in buckets:
        inside = [one for one in datasets.values() if one.input.bucket == bucket and one.input.provider is None]
        done += ensure_notifications(bucket, account.topic_arn(settings.topic), inside)
    return done


def store_bucket(settings: Settings) -> list[str]:
    """Returns the store's bucket when it is on S3: its objects must not be lost to an overwrite either."""
    store = urlsplit(settings.store_url)
    return [store.netloc] if store.scheme == "s3" else []


def account_of(queue_url: str) -> AwsAccount:
    """Reads the account id from the queue's URL; the client knows the rest."""
    meta = sqs_client().meta
    return AwsAccount(meta.partition, meta.region_name, urlsplit(queue_url).path.split("/")[-2])


def _ensure_queue(spec: QueueSpec) -> tuple[AwsAccount, list[str]]:
    sqs = sqs_client()
    with translate_aws_errors(f"queue {spec.name}"):
        try:
            url = sqs.get_queue_url(QueueName=spec.name)["QueueUrl"]
        except sqs.exceptions.QueueDoesNotExist:
            url = sqs.create_queue(QueueName=spec.name, Attributes=spec.settings())["QueueUrl"]  # type: ignore[arg-type]
            _apply_settings(url, changed_settings(spec, spec.settings(), account_of(url)))
            return account_of(url), [f"queue {spec.name}"]
        response = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        current = {str(name): value for name, value in response["Attributes"].items()}
        changed = changed_settings(spec, current, account_of(url))
        _apply_settings(url, changed)
    return account_of(url), [f"queue {spec.name}: {', '.join(sorted(changed))}"] if changed else []


def _apply_settings(url: str, settings: dict[str, str]) -> None:
    if settings:
        sqs_client().set_queue_attributes(QueueUrl=url, Attributes=settings)  # type: ignore[arg-type]
