"""Looks for objects that nobody announced: prefixes without notices, and objects that lie there unseen.

What it costs is bounded: a few requests and one page of a thousand objects for each dataset. Objects of providers are
not listed; whether our queue is subscribed to their topic is all that we can see.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kfm_pipelines.aws.buckets import missing_events, notifications_of
from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.aws.provision import account_of
from kfm_pipelines.aws.topics import provider_subscription
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import KfmError, ObjectMissing, SettingsInvalid
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.inbox.bucket_objects import resolve_objects
from kfm_pipelines.services import Services
from kfm_pipelines.state.inbox import recorded_uris

log = logging.getLogger(__name__)

PAGE = 1000
GRACE = timedelta(minutes=5)  # its notice may still be on the way
SECONDS_BETWEEN_LOOKS = 300.0
_LOOKS = "looks at inputs"


@dataclass(frozen=True, slots=True)
class InputState:
    """How the input of a dataset is wired, and what lies there. Counts are of the first page."""

    dataset: str
    place: str  # s3://bucket/prefix
    unannounced: str | None = None  # why its objects are not announced to us
    matching: int = 0
    unmatched: int = 0  # objects that its pattern or size limit refuses
    unseen: int = 0  # objects that match, and that no event has named
    recent: int = 0  # objects whose notices may still be on the way; the other counts are without them
    has_more: bool = False  # there are more objects than one page has
    take_in: str = ""  # the command that takes in what is unseen

    @property
    def problems(self) -> list[str]:
        found = []
        if self.unannounced:
            found.append(f"{self.dataset}: {self.unannounced}; kfm doctor --fix wires it")
        if self.unseen:
            count = f"{self.unseen}{' or more' if self.has_more else ''}"
            noun = "object lies" if count == "1" else "objects lie"
            found.append(f"{self.dataset}: {count} {noun} under {self.place} unseen; {self.take_in}")
        return found


def look_at_input(services: Services, dataset: Dataset, now: datetime | None = None) -> InputState:
    """Raises KfmError when S3, SNS or the database cannot be asked."""
    now = now or datetime.now(UTC)
    place = dataset.input.location
    if dataset.input.upstream:  # what is published of them is announced by every tick
        return InputState(dataset.dataset, place)
    unannounced = _why_unannounced(services, dataset)
    if dataset.input.provider is not None:
        return InputState(dataset.dataset, place, unannounced)
    try:
        objects, has_more = _list_page(dataset)
    except ObjectMissing:
        return InputState(dataset.dataset, place, f"there is no bucket {dataset.input.bucket}")
    settled = [one for one in objects if now - one["LastModified"] > GRACE]
    alone = Datasets({dataset.dataset: dataset}, services.settings.resources)
    # All members of a split know of an object.
    events = [event for event, _ in resolve_objects(dataset.input.bucket, settled, alone, most=1)]
    seen = recorded_uris(services.database, [one.key for one in events], [one.asset_uri for one in events])
    unseen = [one for one in events if one.asset_uri not in seen]
    return InputState(
        dataset=dataset.dataset,
        place=place,
        unannounced=unannounced,
        matching=len(events),
        unmatched=len(settled) - len(events),
        unseen=len(unseen),
        recent=len(objects) - len(settled),
        has_more=has_more,
        take_in=_take_in_command(dataset, unseen, until=now if has_more else None),
    )


def _take_in_command(dataset: Dataset, unseen: Sequence[IngestEvent], until: datetime | None) -> str:
    """Returns the command for the windows of these objects, or until then if there may be more."""
    if not unseen:
        return ""
    last = max(one.window_start for one in unseen)
    first, after = min(one.window_start for one in unseen), max(last, until or last) + timedelta(days=1)
    period = f"--from {first:%Y-%m-%d} --to {after:%Y-%m-%d}"
    return f"kfm replay plan --dataset {dataset.dataset} {period} --register --include-open"


def _why_unannounced(services: Services, dataset: Dataset) -> str | None:
    settings, prefix, provider = services.settings, dataset.input.prefix, dataset.input.provider
    try:
        account = account_of(services.queue.url)
        if provider is not None:
            queue = account.queue_arn(settings.queue)
            subscribed = provider_subscription(provider.topic, queue) is not None
            return None if subscribed else f"{settings.queue} is not subscribed to {provider.topic}"
        missing = missing_events(notifications_of(dataset.input.bucket), account.topic_arn(settings.topic), prefix)
    except SettingsInvalid:
        return f"there is no queue {settings.queue}"
    except ObjectMissing:
        return f"there is no bucket {dataset.input.bucket}"
    return f"bucket {dataset.input.bucket} does not announce {prefix}" if missing else None


def _list_page(dataset: Dataset) -> tuple[list[Any], bool]:
    """Returns the objects under the prefix, and whether there are more."""
    bucket, prefix = dataset.input.bucket, dataset.input.prefix
    with translate_aws_errors(f"listing s3://{bucket}/{prefix}"):
        page: Any = s3_client().list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE)
    return [one for one in page.get("Contents", ()) if not one["Key"].endswith("/")], bool(page.get("IsTruncated"))


def warn_of_unseen(services: Services) -> list[str]:
    """Looks at one dataset a tick, at each every few minutes, and returns what was found at the last looks. What cannot
    be asked is left for later: a tick must not fail because of it."""
    looks: dict[str, tuple[float, list[str]]] = services.load_once(_LOOKS, dict)
    now = time.monotonic()
    waiting = [name for name in services.datasets if now - looks.get(name, (-1e9, []))[0] > SECONDS_BETWEEN_LOOKS]
    if waiting:
        name = min(waiting, key=lambda one: looks.get(one, (-1e9, []))[0])
        _, before = looks.get(name, (0.0, []))
        looks[name] = now, before
        try:
            found = look_at_input(services, services.datasets[name]).problems
        except KfmError as error:
            log.info("the input of %s could not be looked at: %s", name, error)
        else:
            looks[name] = now, found
            for problem in found if found != before else ():
                log.warning("%s", problem)
    return [problem for _, problems in looks.values() for problem in problems]
