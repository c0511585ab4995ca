"""Topics: who may publish, and which messages reach which queue."""

import json
from collections.abc import Iterator

from kfm_pipelines.aws.policies import open_statements, with_statement
from kfm_pipelines.aws.topics import get_subscription, subscriptions_of, topic_attributes
from kfm_pipelines.aws.topology import AwsAccount, SubscriptionSpec, TopicSpec
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorFinding, site_account
from kfm_pipelines.services import Services


def topic_findings(services: Services, spec: TopicSpec) -> Iterator[DoctorFinding]:
    place = site_account(services)
    attributes = topic_attributes(place.topic_arn(spec.name))
    if attributes is None:
        yield DoctorFinding(f"topic {spec.name}", ok=False, found="there is none", remedy=FIX_REMEDY)
        return
    yield _check_settings(spec, attributes)
    yield _check_publishers(spec, place, attributes.get("Policy", ""))


def subscription_findings(services: Services, spec: SubscriptionSpec) -> Iterator[DoctorFinding]:
    place = site_account(services)
    label = f"subscription of {spec.queue} to {spec.topic}"
    arn = subscriptions_of(place.topic_arn(spec.topic)).get(place.queue_arn(spec.queue))
    if arn is None:
        yield DoctorFinding(label, ok=False, found="there is none", remedy=FIX_REMEDY)
        return
    found = get_subscription(arn)
    said = f"{'raw' if found.raw else 'wrapped'}, filter {found.filter_policy or 'none'}"
    expected = f"{'raw' if spec.raw else 'wrapped'} with filter {json.dumps(spec.filter_policy) if spec.filter_policy else 'none'}"
    yield DoctorFinding(label, ok=found.matches(spec), found=said, remedy=f"it should be {expected}; {FIX_REMEDY}")


def _check_settings(spec: TopicSpec, attributes: dict[str, str]) -> DoctorFinding:
    wrong = [f"{name} is not {value}" for name, value in spec.settings().items() if attributes.get(name) != value]
    return DoctorFinding(f"topic {spec.name}", ok=not wrong, found=", ".join(wrong) or "there", remedy=FIX_REMEDY)


def _check_publishers(spec: TopicSpec, account: AwsAccount, policy: str) -> DoctorFinding:
    check = f"policy of topic {spec.name}"
    if opened := open_statements(policy, "sns:Publish"):
        remedy = "remove it from the topic's policy, or bind it to a source by aws:SourceArn"
        return DoctorFinding(
            check, ok=False, found=f"anybody may publish: statement {', '.join(opened)}", remedy=remedy
        )
    statement = spec.statement(account)
    if statement is not None and with_statement(policy, statement) is not None:
        return DoctorFinding(check, ok=False, found="the declared buckets may not publish", remedy=FIX_REMEDY)
    return DoctorFinding(check, ok=True, found="only the declared buckets" if statement else "only this account")
