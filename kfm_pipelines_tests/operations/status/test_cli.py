"""The status of a key begins with whether it is published, and where."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kfm_pipelines.operations.status.cli import _format_publication

AT = datetime(2026, 7, 1, 6, 0, 12, tzinfo=UTC)
NEW: dict[str, Any] = {
    "revisions": [],
    "owner": None,
    "due_at": None,
    "transitions": [],
    "dead_letters": [],
    "file": "f",
}


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            {"revisions": [{"revision": 1, "rows": 9}, {"revision": 2, "rows": 1, "applied_at": AT}], "due_at": AT},
            "published: revision 2, 1 row, 2026-07-01 06:00:12Z; f",
        ),
        ({"owner": "a run", "due_at": AT}, "not published yet: a run works on it"),
        ({"due_at": AT}, "not published yet: it is due at 2026-07-01 06:00:12Z"),
        (
            {"transitions": [{"outcome": None}, {"outcome": "FAILED"}], "dead_letters": [{}]},
            "not published, because it failed; see its dead letter",
        ),
        ({"transitions": [{"outcome": "FAILED"}]}, "not published"),
        ({}, "not published"),
    ],
)
def test_the_status_of_a_key_begins_with_its_publication(state: dict[str, Any], sentence: str) -> None:
    assert _format_publication({**NEW, **state}) == sentence
