"""Resource policies: ours is put beside what others wrote, and a door left open is found."""

import json
from typing import Any

import pytest

from kfm_pipelines.aws.policies import allow_statement, open_statements, with_statement

QUEUE = "arn:aws:sqs:us-east-1:123456789012:q"
TOPIC = "arn:aws:sns:us-east-1:123456789012:t"
OURS = allow_statement("kfm-topic", "sns.amazonaws.com", "sqs:SendMessage", QUEUE, [TOPIC])


def policy(*statements: object) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def test_a_statement_joins_what_is_there_and_replaces_its_older_self() -> None:
    theirs = {"Sid": "theirs", "Effect": "Allow"}
    old = allow_statement("kfm-topic", "sns.amazonaws.com", "sqs:SendMessage", QUEUE, [TOPIC + "-old"])
    changed = with_statement(policy(theirs, old), OURS) or ""
    assert json.loads(changed)["Statement"] == [theirs, OURS]
    assert with_statement(changed, OURS) is None


def test_a_policy_of_one_statement_may_be_written_without_a_list() -> None:
    theirs = {"Sid": "theirs", "Effect": "Allow"}
    changed = with_statement(json.dumps({"Statement": theirs}), OURS) or ""
    assert json.loads(changed)["Statement"] == [theirs, OURS]


def statement(**changes: Any) -> dict[str, Any]:
    return {"Sid": "it", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": QUEUE} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Principal": {"AWS": "*"}},
        {"Principal": {"AWS": ["arn:aws:iam::1:root", "*"]}},
        {"Principal": {"Service": "s3.amazonaws.com"}},
        {"Action": "SQS:*"},
        {"Action": ["sqs:ReceiveMessage", "sqs:Send*"]},
        {"Action": "*"},
        {"Condition": {"Bool": {"aws:SecureTransport": "true"}}},
        {"Condition": {"ArnLike": {"aws:SourceArn": "*"}}},
        {"Condition": {"ArnNotEquals": {"aws:SourceArn": TOPIC}}},
        {"Condition": {"StringEqualsIfExists": {"aws:SourceAccount": "1"}}},
    ],
)
def test_an_open_door_is_named(changes: dict[str, Any]) -> None:
    assert open_statements(policy(OURS, statement(**changes)), "sqs:SendMessage") == ["it"]


@pytest.mark.parametrize(
    "changes",
    [
        {"Effect": "Deny"},
        {"Action": "sqs:ReceiveMessage"},
        {"Principal": {"AWS": "arn:aws:iam::123456789012:role/producer"}},
        {"Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}}},
        {"Condition": {"StringEquals": {"AWS:SourceOwner": "123456789012"}}},
        {"Condition": {"StringEquals": {"aws:PrincipalOrgID": ["o-1"]}, "Bool": {"aws:SecureTransport": "true"}}},
    ],
)
def test_a_door_for_somebody_is_not_open(changes: dict[str, Any]) -> None:
    assert open_statements(policy(OURS, statement(**changes)), "sqs:SendMessage") == []


def test_no_policy_opens_nothing() -> None:
    assert open_statements("", "sqs:SendMessage") == []
