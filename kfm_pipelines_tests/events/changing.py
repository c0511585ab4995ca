"""Changes one field of a document, named by its path; tests of every shape do it."""

from copy import deepcopy
from typing import Any


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with the field at `a.b.0.c` replaced, or taken out when the value is `...`."""
    copy = deepcopy(document)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = copy
    for name in parents:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copy
