"""Resource policies of topics and queues: merging in our statement and finding open ones. Pure."""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

Statement = Mapping[str, object]

# Conditions that limit a statement for everybody to certain callers.
_BINDING_KEYS = frozenset({
    "aws:sourcearn", "aws:sourceaccount", "aws:sourceowner", "aws:sourceorgid",
    "aws:principalarn", "aws:principalaccount", "aws:principalorgid",
})  # fmt: skip
_BINDING_OPERATORS = frozenset({"stringequals", "stringlike", "arnequals", "arnlike"})


def allow_statement(sid: str, service: str, action: str, resource: str, sources: Sequence[str]) -> Statement:
    """Lets an AWS service act on this resource on behalf of these sources only."""
    condition: dict[str, object] = {"ArnEquals": {"aws:SourceArn": list(sources)}}
    if any(source.split(":")[4] == "" for source in sources):
        # A bucket's ARN names no account: after we delete it, its next owner could send to us.
        condition["StringEquals"] = {"aws:SourceAccount": resource.split(":")[4]}
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": action,
        "Resource": resource,
        "Condition": condition,
    }


def with_statement(policy: str, statement: Statement | None) -> str | None:
    """Returns the policy with this statement replacing any with the same Sid; None when nothing has to change."""
    if statement is None:
        return None
    document: dict[str, Any] = json.loads(policy) if policy else {"Version": "2012-10-17"}
    statements = _as_list(document.get("Statement", []))
    others = [one for one in statements if one.get("Sid") != statement["Sid"]]
    if len(others) < len(statements) and _normalise(statement) in [_normalise(one) for one in statements]:
        return None
    return json.dumps({**document, "Statement": [*others, statement]})


def open_statements(policy: str, action: str) -> list[str]:
    """Returns the Sids of statements that allow the action to anybody, or to a service on anybody's behalf."""
    document = json.loads(policy) if policy else {}
    statements = _as_list(document.get("Statement", []))
    return [str(one.get("Sid", "without a name")) for one in statements if _is_open(one, action)]


def _is_open(statement: Mapping[str, Any], action: str) -> bool:
    patterns = [str(pattern).lower() for pattern in _as_list(statement.get("Action", "*"))]
    if statement.get("Effect") != "Allow" or not any(fnmatchcase(action.lower(), one) for one in patterns):
        return False
    principal = statement.get("Principal", "*")
    named = [] if isinstance(principal, str) else _as_list(principal.get("AWS", []))
    anybody = principal == "*" or "*" in named or "Service" in principal
    return anybody and not any(
        operator.lower() in _BINDING_OPERATORS and key.lower() in _BINDING_KEYS and "*" not in _as_list(values)
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _as_list(value: Any) -> list[Any]:
    """AWS writes a list of one as its element."""
    return value if isinstance(value, list) else [value]


def _normalise(statement: object) -> object:
    """AWS turns a list of one into its element, and reorders lists."""
    if isinstance(statement, Mapping):
        return {key: _normalise(value) for key, value in statement.items()}
    if isinstance(statement, list):
        return statement[0] if len(statement) == 1 else sorted(map(str, statement))
    return statement
