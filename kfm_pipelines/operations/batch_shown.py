"""What people who look at a run may see of its keys: pictures, columns, places. None of it is a reason to stop."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Table
from kfm_pipelines.operations.care_shown import CareShown, care_shown
from kfm_pipelines.operations.published_maps import published_maps
from kfm_pipelines.operations.terms import TermsOfKeys
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.telemetry.frames import trace_of

log = logging.getLogger(__name__)


class BatchShown:
    def __init__(self, workshop: Workshop, dataset: Dataset, terms: TermsOfKeys) -> None:
        self._workshop = workshop
        self._dataset = dataset
        self._terms = terms

    def care(self, claims: Iterable[Claim]) -> dict[str, CareShown]:
        """What may be shown of the masking of staged keys; nothing where nothing is masked, or where it cannot be
        drawn."""
        shown: dict[str, CareShown] = {}
        for claim in claims:
            try:
                terms = self._terms.of(claim.key)
                if terms.rules(claim.key).masks:
                    shown[claim.key] = care_shown(self._workshop, terms.dataset, claim, terms.rules(claim.key))
            except Exception as error:  # noqa: BLE001 - what it is may quote the data
                log.warning("no picture of %s: %s\n%s", claim.key, type(error).__name__, trace_of(error))
        return shown

    def maps(self, releases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """None of what an exemption lets out: that can be withdrawn, a picture in the log of a run cannot."""
        lasting = {key: one for key, one in releases.items() if self._terms.of(key).rules(key).came_to != "exempted"}
        return published_maps(self._workshop, self._dataset, lasting)

    def table(self, key: str) -> Table:
        terms = self._terms.of(key)
        return terms.rules(key).published(terms.dataset)

    @property
    def store_url(self) -> str:
        return self._workshop.store.url
