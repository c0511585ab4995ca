"""Queries of people: reading only, whatever the server would allow."""

import re
from collections.abc import Mapping
from typing import Any

from kfm_pipelines.errors import QueryRefused
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.graph.client import GraphRefused, open_graph

_UNREAD = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|//[^\n]*|/\*.*?\*/""", re.DOTALL)
# Not after a dot, a colon or a bar, where a word is the name of a property, a label or a kind.
_WORD = re.compile(r"(?<![.:|&!$\w])([A-Za-z_]+)\b(?!\s*:)(\s*[({])?")
WRITING = frozenset(
    {
        "ALTER", "CREATE", "DELETE", "DENY", "DETACH", "DROP", "FOREACH", "GRANT", "INSERT", "LOAD", "MERGE", "REMOVE",
        "REVOKE", "SET", "TERMINATE", "USE",
    }
)  # fmt: skip


def query_graph(services: Services, query: str) -> list[dict[str, Any]]:
    """Returns the rows. Raises QueryRefused for a query that could write, read a file or call a procedure."""
    check_reading(query)
    with open_graph(services.settings) as graph:
        try:
            rows = graph.read(lambda run: run(query))
        except GraphRefused as refusal:
            raise QueryRefused(str(refusal)) from None
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def check_reading(query: str) -> None:
    """Refuses clauses that write. The query is rolled back besides: not every server enforces read transactions."""
    if re.search(r"\\u", query, re.IGNORECASE):
        raise QueryRefused("queries can have no escaped characters: write them as they are")
    for found in _WORD.finditer(_UNREAD.sub(" '' ", query)):
        word, opened = found[1].upper(), found[2]
        if word in WRITING:
            raise QueryRefused(f"queries can only read, so {word} is not allowed")
        if word == "CALL" and not opened:
            raise QueryRefused("queries can call no procedures; a subquery is CALL { … }")


def _plain(value: Any) -> Any:
    """Returns the value as JSON has it: times as ISO 8601, everything unknown as text."""
    if hasattr(value, "iso_format"):  # a duration is a tuple too
        return value.iso_format()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
