"""Diagnosis: every assumption the pipeline makes about its surroundings, checked one by one."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kfm_pipelines.errors import KfmError
from kfm_pipelines.messaging.aws_errors import translated
from kfm_pipelines.messaging.clients import s3_client
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.database import is_current

FIX = "run `kfm doctor --fix`, or create it as you create the rest of your infrastructure"
LARGEST_CLOCK_SKEW_SECONDS = 5
# A tick collects for a few seconds before it deletes; a message must stay hidden until then, with room to spare.
LEAST_VISIBILITY_SECONDS = 60
LEAST_RETENTION_SECONDS = 4 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    ok: bool
    found: str
    remedy: str = ""


def diagnose(workshop: Workshop) -> list[Finding]:
    """All findings; a part that cannot be asked is one wrong finding, and the others are still looked at."""
    findings: list[Finding] = []
    for check, look in (
        ("declarations", _declarations),
        ("Postgres", _postgres),
        ("store", _store),
        ("buckets", _buckets),
        ("queue", _queue),
    ):
        findings += _looked(check, look, workshop)
    return findings


def _looked(check: str, look: Callable[[Workshop], Iterator[Finding]], workshop: Workshop) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(look(workshop))
    except KfmError as error:
        findings.append(Finding(check, ok=False, found=str(error), remedy="mend this, then run `kfm doctor` again"))
    return findings


def _declarations(workshop: Workshop) -> Iterator[Finding]:
    for dataset in workshop.datasets.values():
        policy = workshop.policy(dataset)
        days = (policy.review_by - workshop.today()).days
        yield Finding(
            f"policy of {dataset.dataset}",
            ok=days >= 0,
            found=f"{policy.name}, to be reviewed by {policy.review_by}",
            remedy=f"have {policy.authority} review it; until then nothing is published under it",
        )


def _postgres(workshop: Workshop) -> Iterator[Finding]:
    [row] = workshop.database.fetch("SELECT clock_timestamp() AS now, current_setting('server_version') AS version")
    yield Finding("Postgres", ok=True, found=f"answers, version {row['version']}")
    skew = abs((datetime.now(UTC) - row["now"]).total_seconds())
    yield Finding(
        "clock",
        ok=skew <= LARGEST_CLOCK_SKEW_SECONDS,
        found=f"{skew:.1f} s apart from the database's",
        remedy="synchronise this machine's clock (leases go by the database's, logs by this one)",
    )
    current = is_current(workshop.database)
    yield Finding("schema", ok=current, found="up to date" if current else "missing or old", remedy=FIX)


def _store(workshop: Workshop) -> Iterator[Finding]:
    path = "work/doctor/probe"
    workshop.store.write(path, b"probe")
    workshop.store.remove("work/doctor")
    yield Finding("store", ok=True, found=f"{workshop.store.url} can be written")


def _buckets(workshop: Workshop) -> Iterator[Finding]:
    for bucket in sorted({dataset.input.bucket for dataset in workshop.datasets.values()}):
        with translated(f"looking at bucket {bucket}"):
            versioned = s3_client().get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
            notices = s3_client().get_bucket_notification_configuration(Bucket=bucket)
        yield Finding(f"bucket {bucket}", ok=versioned, found="versioned" if versioned else "not versioned", remedy=FIX)
        announced = bool(notices.get("TopicConfigurations") or notices.get("EventBridgeConfiguration") is not None)
        yield Finding(
            f"notices of {bucket}", ok=announced, found="announced" if announced else "not announced", remedy=FIX
        )


def _queue(workshop: Workshop) -> Iterator[Finding]:
    attributes = workshop.queue.attributes()
    visibility = int(attributes["VisibilityTimeout"])
    yield Finding(
        "visibility timeout",
        ok=visibility >= LEAST_VISIBILITY_SECONDS,
        found=f"{visibility} s",
        remedy=f"set it to {LEAST_VISIBILITY_SECONDS} s or more, or messages come again while they are being recorded",
    )
    retention = int(attributes["MessageRetentionPeriod"])
    yield Finding(
        "retention",
        ok=retention >= LEAST_RETENTION_SECONDS,
        found=f"{retention // 86_400} days",
        remedy="set it to 4 days or more, so that a long weekend without a consumer loses nothing",
    )
    redrive = json.loads(attributes.get("RedrivePolicy", "{}"))
    target = str(redrive.get("deadLetterTargetArn", "")).rsplit(":", 1)[-1]
    yield Finding(
        "dead-letter queue", ok=bool(target), found=target or "none", remedy="attach one by a redrive policy; or " + FIX
    )
