"""Buckets: versioned, and announcing what is created and what is removed."""

from collections.abc import Iterator

from kfm_pipelines.aws.buckets import is_versioned, missing_events, notifications_of
from kfm_pipelines.aws.provision import store_bucket
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorFinding, site_account
from kfm_pipelines.services import Services


def bucket_findings(services: Services, bucket: str) -> Iterator[DoctorFinding]:
    yield _check_versioning(bucket)
    topic = site_account(services).topic_arn(services.settings.topic)
    notifications = notifications_of(bucket)
    for dataset in services.datasets.values():
        if dataset.input.bucket == bucket:
            missing = missing_events(notifications, topic, dataset.input.prefix)
            yield DoctorFinding(
                f"notices of {bucket} for {dataset.dataset}",
                ok=not missing,
                found=f"not announced: {', '.join(missing)}" if missing else "announced",
                remedy=FIX_REMEDY,
            )


def store_findings(services: Services) -> Iterator[DoctorFinding]:
    for bucket in store_bucket(services.settings):
        yield _check_versioning(bucket)


def _check_versioning(bucket: str) -> DoctorFinding:
    versioned = is_versioned(bucket)
    return DoctorFinding(
        f"bucket {bucket}", ok=versioned, found="versioned" if versioned else "not versioned", remedy=FIX_REMEDY
    )
