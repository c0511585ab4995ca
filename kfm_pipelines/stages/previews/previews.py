"""What people who look at a run may see of its keys: pictures, columns, places. None of it is a reason to stop."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines.care.governance import KeyRules
from kfm_pipelines.care.review.maps import DIALOG_WIDTH, draw_release_map
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfigs
from kfm_pipelines.stages.previews.maps import published_maps
from kfm_pipelines.stages.publish.release import detail_of
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout
from kfm_pipelines.telemetry.logs.lines import format_traceback


@dataclass(frozen=True, slots=True)
class CarePreview:
    policy: str
    numbers: Mapping[str, int | float]
    png: bytes


def preview_care(services: Services, dataset: Dataset, claim: Claim, rules: KeyRules) -> CarePreview:
    measures = detail_of(services.database, claim, Step.MASK)["measures"]
    data = services.store.read(Layout(dataset.pipeline).staged_data(claim.key, claim.epoch))
    table = read_parquet(data, claim.key)
    picture = draw_release_map(services, dataset, claim.key, table, DIALOG_WIDTH)
    return CarePreview(rules.policy.name, _numbers(measures), picture)


def _numbers(measures: Mapping[str, object]) -> dict[str, int | float]:
    """The measures that can be plotted; those with parts become one for each part."""
    numbers: dict[str, int | float] = {}
    for name, value in measures.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        for part, number in parts.items():
            if isinstance(number, int | float):
                numbers[f"{name}_{part}" if part else name] = number
    return numbers


log = logging.getLogger(__name__)


class BatchPreviews:
    def __init__(self, services: Services, dataset: Dataset, configs: KeyConfigs) -> None:
        self._services = services
        self._dataset = dataset
        self._configs = configs

    def care(self, claims: Iterable[Claim]) -> dict[str, CarePreview]:
        """What may be shown of the masking of staged keys; nothing where nothing is masked, or where it cannot be
        drawn."""
        shown: dict[str, CarePreview] = {}
        for claim in claims:
            try:
                terms = self._configs.for_key(claim.key)
                if terms.rules(claim.key).masks:
                    shown[claim.key] = preview_care(self._services, terms.dataset, claim, terms.rules(claim.key))
            except Exception as error:  # noqa: BLE001 - what it is may quote the data
                log.warning("no picture of %s: %s\n%s", claim.key, type(error).__name__, format_traceback(error))
        return shown

    def maps(self, releases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """None of what an exemption lets out: that can be withdrawn, a picture in the log of a run cannot."""
        lasting = {
            key: one
            for key, one in releases.items()
            if self._configs.for_key(key).rules(key).masking_status != "exempted"
        }
        return published_maps(self._services, self._dataset, lasting)

    def table(self, key: str) -> Table:
        terms = self._configs.for_key(key)
        return terms.rules(key).published_table(terms.dataset)

    @property
    def store_url(self) -> str:
        return self._services.store.url
