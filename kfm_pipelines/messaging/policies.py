"""Resource policies of topics and queues: one statement of ours, merged into whatever else is there. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Statement = Mapping[str, object]


def allow(sid: str, service: str, action: str, resource: str, sources: Sequence[str]) -> Statement:
    """Let an AWS service act on this resource, on behalf of these sources only."""
    condition: dict[str, object] = {"ArnEquals": {"aws:SourceArn": list(sources)}}
    if any(source.split(":")[4] == "" for source in sources):
        # A bucket's ARN names no account: once we delete it, its next owner could send to us.
        condition["StringEquals"] = {"aws:SourceAccount": resource.split(":")[4]}
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": action,
        "Resource": resource,
        "Condition": condition,
    }


def with_statement(policy: str, wanted: Statement) -> str | None:
    """The policy with this statement in place of any of the same name; None when it is already there."""
    document: dict[str, Any] = json.loads(policy) if policy else {"Version": "2012-10-17"}
    statements = document.get("Statement", [])
    others = [one for one in statements if one.get("Sid") != wanted["Sid"]]
    if len(others) < len(statements) and _normal(wanted) in [_normal(one) for one in statements]:
        return None
    return json.dumps({**document, "Statement": [*others, wanted]})


def _normal(statement: object) -> object:
    """AWS turns a list of one into the one, and reorders lists."""
    if isinstance(statement, Mapping):
        return {key: _normal(value) for key, value in statement.items()}
    if isinstance(statement, list):
        return statement[0] if len(statement) == 1 else sorted(map(str, statement))
    return statement
