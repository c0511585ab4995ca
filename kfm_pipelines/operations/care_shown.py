"""What may be shown of a masked release that is staged: its measures, and the map as readers will see it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.governance import Rules
from kfm_pipelines.operations.release import detail_of
from kfm_pipelines.operations.review_maps import DIALOG_WIDTH, map_of_release
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.parquet import read_parquet
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout


@dataclass(frozen=True, slots=True)
class CareShown:
    policy: str
    numbers: Mapping[str, int | float]
    png: bytes


def care_shown(workshop: Workshop, dataset: Dataset, claim: Claim, rules: Rules) -> CareShown:
    measures = detail_of(workshop.database, claim, Step.MASK)["measures"]
    data = workshop.store.read(Layout(dataset.pipeline).staged_data(claim.key, claim.epoch))
    table = read_parquet(data, claim.key)
    picture = map_of_release(workshop, dataset, claim.key, table, DIALOG_WIDTH)
    return CareShown(rules.policy.name, _numbers(measures), picture)


def _numbers(measures: Mapping[str, object]) -> dict[str, int | float]:
    """The measures that can be plotted; those with parts become one for each part."""
    numbers: dict[str, int | float] = {}
    for name, value in measures.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        for part, number in parts.items():
            if isinstance(number, int | float):
                numbers[f"{name}_{part}" if part else name] = number
    return numbers
