"""Queues created where they are missing, and their settings put right where they differ. No message passes here."""

import json
from urllib.parse import urlsplit

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.aws.policies import with_statement
from kfm_pipelines.aws.topology import AwsAccount, QueueSpec


def ensure_queue(spec: QueueSpec) -> tuple[AwsAccount, list[str]]:
    """Where the queue is, and one line when it was created or changed."""
    sqs = sqs_client()
    with translate_aws_errors(f"queue {spec.name}"):
        try:
            url = sqs.get_queue_url(QueueName=spec.name)["QueueUrl"]
        except sqs.exceptions.QueueDoesNotExist:
            url = sqs.create_queue(QueueName=spec.name, Attributes=spec.settings())["QueueUrl"]  # type: ignore[arg-type]
            _apply_settings(url, _changed_settings(spec, spec.settings(), account_of(url)))
            return account_of(url), [f"queue {spec.name}"]
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        current = {str(name): value for name, value in answer["Attributes"].items()}
        differing = _changed_settings(spec, current, account_of(url))
        _apply_settings(url, differing)
    return account_of(url), [f"queue {spec.name}: {', '.join(sorted(differing))}"] if differing else []


def account_of(queue_url: str) -> AwsAccount:
    """A queue's address names its account; the client knows the rest."""
    meta = sqs_client().meta
    return AwsAccount(meta.partition, meta.region_name, urlsplit(queue_url).path.split("/")[-2])


def same_setting(current: str | None, desired: str) -> bool:
    """AWS reorders JSON and writes its numbers as it likes."""
    if current is None or not desired.startswith("{"):
        return current == desired
    return {k: str(v) for k, v in json.loads(current).items()} == {k: str(v) for k, v in json.loads(desired).items()}


def _changed_settings(spec: QueueSpec, current: dict[str, str], account: AwsAccount) -> dict[str, str]:
    settings = spec.settings() | spec.redrive_settings(account)
    differing = {name: value for name, value in settings.items() if not same_setting(current.get(name), value)}
    statement = spec.statement(account)
    if statement is not None and (policy := with_statement(current.get("Policy", ""), statement)) is not None:
        differing["Policy"] = policy
    return differing


def _apply_settings(url: str, settings: dict[str, str]) -> None:
    if settings:
        sqs_client().set_queue_attributes(QueueUrl=url, Attributes=settings)  # type: ignore[arg-type]
