"""Buckets, topics, queues and the wiring between them, created where they are missing.

Safe to run at any time, twice, or by two at once: it looks first, changes only what differs from what we declare, and
leaves what others have set up beside it alone. Belongs here: the order. Does not: what is wanted (`wiring`).
"""

from urllib.parse import urlsplit

from kfm_pipelines.aws.buckets import ensure_bucket, ensure_notifications
from kfm_pipelines.aws.queue_settings import ensure_queue
from kfm_pipelines.aws.topics import ensure_subscription, ensure_topic, subscriptions_of
from kfm_pipelines.aws.topology import AwsAccount, SubscriptionSpec, required_topology
from kfm_pipelines.declarations.dataset import Datasets
from kfm_pipelines.settings import Settings


def provision(settings: Settings, datasets: Datasets) -> list[str]:
    """Create what is missing; return one line for each thing created or changed, none when all was there."""
    wanted = required_topology(settings, datasets)
    buckets = sorted({dataset.input.bucket for dataset in datasets.values()})
    done = [line for bucket in [*buckets, *store_bucket(settings)] for line in ensure_bucket(bucket)]
    queues = [ensure_queue(queue) for queue in wanted.queues]
    place = queues[0][0]
    done += [line for _, lines in queues for line in lines]
    for topic in wanted.topics:
        done += ensure_topic(topic, place)
    for topic in wanted.topics:
        leading = [one for one in wanted.subscriptions if one.topic == topic.name]
        done += _subscribe(leading, place) if leading else []
    for bucket in buckets:
        inside = [dataset for dataset in datasets.values() if dataset.input.bucket == bucket]
        done += ensure_notifications(bucket, place.topic_arn(settings.topic), inside)
    return done


def store_bucket(settings: Settings) -> list[str]:
    """The store's bucket, when it is on S3. What is archived and published there must not be lost to an overwrite."""
    store = urlsplit(settings.store_url)
    return [store.netloc] if store.scheme == "s3" else []


def _subscribe(specs: list[SubscriptionSpec], account: AwsAccount) -> list[str]:
    known = subscriptions_of(account.topic_arn(specs[0].topic))
    return [line for one in specs for line in ensure_subscription(one, account, known)]
