"""Fixes the schema of a dataset with its first publication: what was judged is recorded in the publication's own
transaction, so that it does not matter which declaration is in force when an interrupted publication is completed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.gates.schema import diff_schemas
from kfm_pipelines.gates.schema_approval import Schema, fix_first_schema
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.publish.promote import IntendedRelease, KeyFailures
from kfm_pipelines.stages.publish.tables import Publication
from kfm_pipelines.state.wal import Step

SCHEMA = "first_schema"


def first_schema_detail(config: KeyConfig) -> Mapping[str, Any]:
    """Returns what the log keeps of a key that is judged before its dataset has a fixed schema."""
    first = config.first_schema
    return {} if first is None else {SCHEMA: asdict(first)}


def fix_schema(publication: Publication, releases: Sequence[IntendedRelease]) -> KeyFailures:
    """Records the schema if these releases are the first of their dataset. Refuses those with another schema than the
    first, which nobody has compared, unless readers see them already."""
    failures: KeyFailures = {}
    fixed: Schema | None = None
    for one in releases:
        judged = one.facts.details.get(Step.VALIDATE, {}).get(SCHEMA)
        if judged is None:
            continue
        own = Schema(**judged)
        fixed = fixed or fix_first_schema(publication.connection, own) or own
        changes = diff_schemas(fixed.columns, own.columns)
        if changes and one.staged is not None:
            failures[one.key] = GateRefused(
                f"{one.key}: another schema was published first, and needs approval to change: {'; '.join(changes)}"
            )
    return failures
