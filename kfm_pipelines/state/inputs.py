"""The inputs of a transaction as the log has them: what events announced, and which objects were fetched for it."""

from collections.abc import Mapping
from typing import Any


def fetched_inputs(begun: Mapping[str, Any], computed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the announced inputs with each folder replaced by those of its objects that were fetched. Of these the
    events promise nothing."""
    members = computed.get("members", {})
    inputs: list[dict[str, Any]] = []
    for one in begun.get("inputs", []):
        if one["uri"] not in members:
            inputs.append(dict(one))
        unannounced = {"etag": None, "version": None, "size": None, "sequencer": None}
        inputs += [{**one, **unannounced, "uri": uri} for uri in members.get(one["uri"], [])]
    return inputs
