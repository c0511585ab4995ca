"""Mask: what the dataset's policy asks for, done to every row before anything leaves the restricted tier."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm_pipelines.arrow_schemas import declared_schema
from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published import published_table
from kfm_pipelines.datasets import Dataset
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Outcome:
    """The table that may be published, and which unmasked row went where: None when nothing was masked."""

    table: "pa.Table"
    crosswalk: "pa.Table | None" = None
    measures: Mapping[str, Any] = field(default_factory=dict)


def mask(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> Outcome:
    """Apply the policy. Whatever goes wrong, the sentence that says so has no value of the data in it."""
    if policy.is_open:
        return Outcome(table)
    try:
        masked = mask_table(table, dataset, policy, secret)
    except PolicyRefused:
        raise
    except Exception as error:  # noqa: BLE001 - a masker that fails lets nothing out, nor what its error says
        raise PolicyRefused(f"masking failed: {type(error).__name__}; nothing is published") from None
    declared = declared_schema(published_table(dataset, policy))
    return Outcome(masked.table.cast(declared), masked.crosswalk, masked.measures.as_dict())
