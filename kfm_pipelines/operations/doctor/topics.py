"""Topics: who may publish, and which messages reach which queue."""

import json
from collections.abc import Iterator

from kfm_pipelines.aws.policies import open_statements, with_statement
from kfm_pipelines.aws.topics import subscription, subscriptions_of, topic_attributes
from kfm_pipelines.aws.topology import Place, SubscriptionWanted, TopicWanted
from kfm_pipelines.operations.doctor.finding import FIX, Finding, place_of_site
from kfm_pipelines.services import Services


def topic_findings(services: Services, spec: TopicWanted) -> Iterator[Finding]:
    place = place_of_site(services)
    attributes = topic_attributes(place.topic_arn(spec.name))
    if attributes is None:
        yield Finding(f"topic {spec.name}", ok=False, found="there is none", remedy=FIX)
        return
    yield _settings(spec, attributes)
    yield _publishers(spec, place, attributes.get("Policy", ""))


def subscription_findings(services: Services, spec: SubscriptionWanted) -> Iterator[Finding]:
    place = place_of_site(services)
    label = f"subscription of {spec.queue} to {spec.topic}"
    arn = subscriptions_of(place.topic_arn(spec.topic)).get(place.queue_arn(spec.queue))
    if arn is None:
        yield Finding(label, ok=False, found="there is none", remedy=FIX)
        return
    found = subscription(arn)
    said = f"{'raw' if found.raw else 'wrapped'}, filter {found.filter_policy or 'none'}"
    expected = f"{'raw' if spec.raw else 'wrapped'} with filter {json.dumps(spec.filter_policy) if spec.filter_policy else 'none'}"
    yield Finding(label, ok=found.matches(spec), found=said, remedy=f"it should be {expected}; {FIX}")


def _settings(spec: TopicWanted, attributes: dict[str, str]) -> Finding:
    wrong = [f"{name} is not {value}" for name, value in spec.settings().items() if attributes.get(name) != value]
    return Finding(f"topic {spec.name}", ok=not wrong, found=", ".join(wrong) or "there", remedy=FIX)


def _publishers(spec: TopicWanted, account: Place, policy: str) -> Finding:
    check = f"policy of topic {spec.name}"
    if opened := open_statements(policy, "sns:Publish"):
        remedy = "remove it from the topic's policy, or bind it to a source by aws:SourceArn"
        return Finding(check, ok=False, found=f"anybody may publish: statement {', '.join(opened)}", remedy=remedy)
    statement = spec.statement(account)
    if statement is not None and with_statement(policy, statement) is not None:
        return Finding(check, ok=False, found="the declared buckets may not publish", remedy=FIX)
    return Finding(check, ok=True, found="only the declared buckets" if statement else "only this account")
