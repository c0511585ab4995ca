"""Mask: what the dataset's policy asks for, done to every row before anything leaves the restricted tier."""

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from kfm_pipelines.care.policies import Policy, refuse_if_unfit
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MaskReport:
    """What was done, for the log, the catalog and the reviewers."""

    policy: str
    rows: int


def mask(table: "pa.Table", policy: Policy, today: date) -> "tuple[pa.Table, MaskReport]":
    """Apply the policy; PolicyRefused when it is not fit to be applied."""
    refuse_if_unfit(policy, today)
    if not policy.is_open:
        raise PolicyRefused(f"policy {policy.name} asks for masking")
    return table, MaskReport(policy.name, table.num_rows)
