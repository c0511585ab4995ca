"""Buckets: versioned, and announcing what is created and what is removed."""

from collections.abc import Iterator

from kfm_pipelines.aws.buckets import is_versioned, notifications_of, unannounced
from kfm_pipelines.aws.provision import store_bucket
from kfm_pipelines.operations.doctor.finding import FIX, Finding, place_of_site
from kfm_pipelines.services import Services


def bucket_findings(services: Services, bucket: str) -> Iterator[Finding]:
    yield _versioned(bucket)
    topic = place_of_site(services).topic_arn(services.settings.topic)
    notifications = notifications_of(bucket)
    for dataset in services.datasets.values():
        if dataset.input.bucket == bucket:
            missing = unannounced(notifications, topic, dataset.input.prefix)
            yield Finding(
                f"notices of {bucket} for {dataset.dataset}",
                ok=not missing,
                found=f"not announced: {', '.join(missing)}" if missing else "announced",
                remedy=FIX,
            )


def store_findings(services: Services) -> Iterator[Finding]:
    for bucket in store_bucket(services.settings):
        yield _versioned(bucket)


def _versioned(bucket: str) -> Finding:
    versioned = is_versioned(bucket)
    return Finding(f"bucket {bucket}", ok=versioned, found="versioned" if versioned else "not versioned", remedy=FIX)
