"""Breaks every setting on the live emulator: the doctor reports it, and --fix corrects it."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kfm_pipelines.aws.clients import s3_client, sns_client, sqs_client
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.doctor import DoctorFinding, diagnose
from kfm_pipelines.operations.doctor.finding import DoctorCheck, run_checks
from kfm_pipelines.operations.doctor.topology import MAX_HOLD_SECONDS, store_bucket_findings, topology_checks
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.settings import Settings
from kfm_pipelines_tests.fixtures.aws.emulator import (
    queue_attributes,
    queue_url,
    set_queue,
    set_subscription,
    subscription_arn,
    topic_arn,
)
from kfm_pipelines_tests.fixtures.care.register import with_reviewer
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a reviewer: the shipped authorities have no keys, which would be a finding. Every test leaves it
    healthy."""
    root = tmp_path_factory.mktemp("topology") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield with_reviewer(opened).site


Break = Callable[[Site, Settings], None]


def wrong(services: Services) -> list[DoctorFinding]:
    checks: list[DoctorCheck] = [*topology_checks(services), ("store bucket", partial(store_bucket_findings, services))]
    return [finding for finding in run_checks(checks) if not finding.ok]


def redrive(queue: str, target: str, receives: int) -> None:
    policy = {"deadLetterTargetArn": queue_attributes(target)["QueueArn"], "maxReceiveCount": receives}
    set_queue(queue, RedrivePolicy=json.dumps(policy))


def announce(site: Site, *events: Any, prefix: str | None = None) -> None:
    """Replaces the notifications of the streamflow dataset; those of other datasets stay."""
    ours = site.dataset.input.prefix
    found = s3_client().get_bucket_notification_configuration(Bucket=site.bucket)["TopicConfigurations"]
    configuration: Any = {
        "Id": "by-hand",
        "TopicArn": topic_arn(site.services.settings.topic),
        "Events": list(events),
        "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix or ours}]}},
    }
    others = [one for one in found if one["Filter"]["Key"]["FilterRules"][0]["Value"] != ours]
    s3_client().put_bucket_notification_configuration(
        Bucket=site.bucket, NotificationConfiguration={"TopicConfigurations": [*others, configuration]}
    )


def set_topic(name: str, attribute: str, value: str) -> None:
    sns_client().set_topic_attributes(TopicArn=topic_arn(name), AttributeName=attribute, AttributeValue=value)


def unsubscribe(topic: str, queue: str) -> None:
    sns_client().unsubscribe(SubscriptionArn=subscription_arn(topic, queue))


CREATED, REMOVED, EXPIRED = "s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*"

FIXABLE: dict[str, tuple[Break, str, str]] = {
    "queue hides messages too briefly": (
        lambda _, s: set_queue(s.queue, VisibilityTimeout=str(MAX_HOLD_SECONDS)),
        "visibility timeout of {queue}",
        f"{MAX_HOLD_SECONDS} s",
    ),
    "priority queue hides messages too briefly": (
        lambda _, s: set_queue(s.priority_queue, VisibilityTimeout="30"),
        "visibility timeout of {priority_queue}",
        "30 s",
    ),
    "FIFO queue hides messages too briefly": (
        lambda _, s: set_queue(s.fifo_queue, VisibilityTimeout="30"),
        "visibility timeout of {fifo_queue}",
        "30 s",
    ),
    "queue forgets too soon": (
        lambda _, s: set_queue(s.queue, MessageRetentionPeriod=str(4 * 86_400 - 1)),
        "retention of {queue}",
        "days",
    ),
    "dead letters are forgotten first": (
        lambda _, s: set_queue(s.fifo_dead_letter_queue, MessageRetentionPeriod=str(13 * 86_400)),
        "retention of {fifo_dead_letter_queue}",
        "13 days, and 14 days on",
    ),
    "no dead-letter queue": (
        lambda _, s: set_queue(s.priority_queue, RedrivePolicy=""),
        "dead-letter queue of {priority_queue}",
        "none",
    ),
    "another dead-letter queue": (
        lambda _, s: redrive(s.queue, s.priority_queue, 5),
        "dead-letter queue of {queue}",
        "{priority_queue}",
    ),
    "gives up at once": (
        lambda _, s: redrive(s.queue, s.dead_letter_queue, 2),
        "dead-letter queue of {queue}",
        "after 2 receives",
    ),
    "hardly gives up": (
        lambda _, s: redrive(s.fifo_queue, s.fifo_dead_letter_queue, 11),
        "dead-letter queue of {fifo_queue}",
        "after 11 receives",
    ),
    "our topic may not send": (
        lambda _, s: set_queue(s.queue, Policy=""),
        "policy of {queue}",
        "not open to {topic}, {notice_topic}",
    ),
    "FIFO queue does not deduplicate": (
        lambda _, s: set_queue(s.fifo_queue, ContentBasedDeduplication="false"),
        "FIFO settings of {fifo_queue}",
        "ContentBasedDeduplication not on",
    ),
    "FIFO dead-letter queue does not deduplicate": (
        lambda _, s: set_queue(s.fifo_dead_letter_queue, ContentBasedDeduplication="false"),
        "FIFO settings of {fifo_dead_letter_queue}",
        "ContentBasedDeduplication not on",
    ),
    "FIFO topic does not deduplicate": (
        lambda _, s: set_topic(s.fifo_queue, "ContentBasedDeduplication", "false"),
        "topic {fifo_queue}",
        "ContentBasedDeduplication is not true",
    ),
    "buckets may not publish": (
        lambda _, s: set_topic(s.topic, "Policy", '{"Statement": []}'),
        "policy of topic {topic}",
        "the declared buckets may not publish",
    ),
    "S3's topic leads nowhere": (
        lambda _, s: unsubscribe(s.topic, s.queue),
        "subscription of {queue} to {topic}",
        "missing",
    ),
    "S3's notices are filtered": (
        lambda _, s: set_subscription(s.topic, s.queue, "FilterPolicy", '{"dataset": ["x"]}'),
        "subscription of {queue} to {topic}",
        'filter {{"dataset": ["x"]}}',
    ),
    "urgent notices are filtered otherwise": (
        lambda _, s: set_subscription(s.notice_topic, s.priority_queue, "FilterPolicy", '{"priority": ["high"]}'),
        "subscription of {priority_queue} to {notice_topic}",
        'filter {{"priority": ["high"]}}',
    ),
    "FIFO messages come wrapped": (
        lambda _, s: set_subscription(s.fifo_queue, s.fifo_queue, "RawMessageDelivery", "false"),
        "subscription of {fifo_queue} to {fifo_queue}",
        "wrapped",
    ),
    "removals are not announced": (
        lambda site, _: announce(site, CREATED),
        "notices of {bucket} for usgs/streamflow",
        f"not announced: {EXPIRED}, {REMOVED}",
    ),
    "creations are not announced": (
        lambda site, _: announce(site, REMOVED, EXPIRED),
        "notices of {bucket} for usgs/streamflow",
        f"not announced: {CREATED}",
    ),
    "another prefix is announced": (
        lambda site, _: announce(site, CREATED, REMOVED, EXPIRED, prefix="usgs/streamflow/2025/"),
        "notices of {bucket} for usgs/streamflow",
        "not announced",
    ),
}


def filled(text: str, site: Site) -> str:
    return text.format(**dataclasses.asdict(site.services.settings), bucket=site.bucket)


def rounds() -> list[list[str]]:
    """The cases in as few rounds as possible, in each at most one for every check."""
    found: list[dict[str, str]] = []
    for case, (_, check, _) in FIXABLE.items():
        free = next((one for one in found if check not in one), None)
        if free is None:
            found.append(free := {})
        free[check] = case
    return [list(one.values()) for one in found]


@pytest.mark.parametrize("cases", rounds(), ids=", ".join)
def test_broken_settings_are_found_and_fixed(site: Site, cases: list[str]) -> None:
    for case in cases:
        FIXABLE[case][0](site, site.services.settings)

    findings = {finding.check: finding for finding in wrong(site.services)}
    expected = {filled(check, site): filled(found, site) for _, check, found in (FIXABLE[case] for case in cases)}
    assert findings.keys() == expected.keys()
    for check, finding in findings.items():
        assert expected[check] in finding.found
        assert "kfm doctor --fix" in finding.remedy
        assert "\n" not in finding.found + finding.remedy

    assert set_up(site.services, cloud=True) != []
    assert wrong(site.services) == []


OPEN = {"Sid": "everybody", "Effect": "Allow", "Principal": "*"}


@pytest.mark.parametrize("queue", ["queue", "priority_queue", "fifo_queue"])
def test_a_queue_open_to_anybody_is_left_to_people(site: Site, queue: str) -> None:
    name = getattr(site.services.settings, queue)
    policy = queue_attributes(name)["Policy"]
    document = json.loads(policy)
    document["Statement"].append({**OPEN, "Action": "sqs:SendMessage"})
    set_queue(name, Policy=json.dumps(document))

    assert set_up(site.services, cloud=True) == []  # it may be intended
    [finding] = wrong(site.services)
    assert (finding.check, finding.found) == (f"policy of {name}", "anyone may send: statement everybody")
    assert "aws:SourceArn" in finding.remedy
    set_queue(name, Policy=policy)


@pytest.mark.parametrize("topic", ["topic", "notice_topic", "fifo_queue"])
def test_a_topic_open_to_anybody_is_left_to_people(site: Site, topic: str) -> None:
    name = getattr(site.services.settings, topic)
    found = sns_client().get_topic_attributes(TopicArn=topic_arn(name))["Attributes"]
    document = json.loads(found["Policy"])
    document["Statement"].append({**OPEN, "Action": "sns:Publish"})
    set_topic(name, "Policy", json.dumps(document))

    [finding] = wrong(site.services)
    assert (finding.check, finding.found) == (f"policy of topic {name}", "anyone may publish: statement everybody")
    set_topic(name, "Policy", found["Policy"])


@pytest.mark.parametrize(
    ("queue", "checks"),
    [
        ("priority_queue", ["queue {priority_queue}"]),
        ("fifo_queue", ["queue {fifo_queue}"]),
        ("dead_letter_queue", ["queue {priority_queue}", "queue {queue}"]),
        ("fifo_dead_letter_queue", ["queue {fifo_queue}"]),
    ],
)
def test_a_missing_queue_is_found_and_created(site: Site, queue: str, checks: list[str]) -> None:
    name = getattr(site.services.settings, queue)
    sqs_client().delete_queue(QueueUrl=queue_url(name))
    # New services have no cached queue URL.
    newcomer = Services(site.services.settings)

    findings = wrong(newcomer)
    assert [finding.check for finding in findings] == [filled(check, site) for check in checks]
    assert {finding.found for finding in findings} == {f"there is no queue {name!r}; `kfm doctor --fix` creates it"}
    assert f"queue {name}" in set_up(newcomer, cloud=True)
    assert wrong(newcomer) == []
    newcomer.close()


def test_a_missing_topic_is_found_and_created(site: Site) -> None:
    topic, queue = site.services.settings.notice_topic, site.services.settings.queue
    sns_client().delete_topic(TopicArn=topic_arn(topic))

    high = site.services.settings.priority_queue
    assert {finding.check: finding.found for finding in wrong(site.services)} == {
        f"topic {topic}": "missing",
        f"subscription of {high} to {topic}": "missing",
        f"subscription of {queue} to {topic}": "missing",
    }
    done = set_up(site.services, cloud=True)
    assert {f"topic {topic}", f"subscription of {queue} to {topic}"} <= set(done)
    assert wrong(site.services) == []


def test_the_bucket_of_the_store_must_be_versioned(site: Site) -> None:
    store = f"{site.bucket}-store"
    on_s3 = Services(dataclasses.replace(site.services.settings, store_url=f"s3://{store}/releases"))
    set_up(on_s3, cloud=True)
    s3_client().put_bucket_versioning(Bucket=store, VersioningConfiguration={"Status": "Suspended"})

    [finding] = wrong(on_s3)
    assert (finding.check, finding.found) == (f"bucket {store}", "not versioned")
    set_up(on_s3, cloud=True)
    assert wrong(on_s3) == []
    on_s3.close()


def test_a_bucket_with_eventbridge_announces_everything(site: Site) -> None:
    configured: Any = {"EventBridgeConfiguration": {}}
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration=configured)
    assert wrong(site.services) == []
    s3_client().put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
    set_up(site.services, cloud=True)


def test_a_wrong_declaration_does_not_hide_the_other_findings(site: Site) -> None:
    declaration = site.services.settings.resources / "datasets" / "usgs-streamflow.yaml"
    valid = declaration.read_text()
    declaration.write_text(valid.replace("window: hour", "window: hourly"))
    newcomer = Services(site.services.settings)

    findings = diagnose(newcomer)
    assert [finding.check for finding in findings if not finding.ok] == ["declarations", "care", "wiring"]
    assert "Postgres" in [finding.check for finding in findings if finding.ok]
    newcomer.close()
    declaration.write_text(valid)


def test_a_message_stays_hidden_longer_than_a_tick_may_hold_it() -> None:
    assert MAX_HOLD_SECONDS == 102
