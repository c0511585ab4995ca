"""The coefficients of this site, and what a piece of work cost by them."""

import logging

from kfm_pipelines.energy.estimate import UNKNOWN, Coefficients, Energy, estimate, load_coefficients
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.errors import KfmError
from kfm_pipelines.services import Services
from kfm_pipelines.state.config_snapshots import save_snapshot

log = logging.getLogger(__name__)


def coefficients_of(services: Services) -> Coefficients:
    return services.load_once("coefficients", lambda: load_coefficients(services.settings.resources))


def coefficients_digest(services: Services) -> str:
    """Returns the digest under which the coefficients are kept; ledger entries refer to it."""
    document = coefficients_of(services).model_dump(mode="json")
    return services.load_once(
        "coefficients digest", lambda: save_snapshot(services.database, "energy-coefficients", document)
    )


def energy_of(services: Services, usage: Usage) -> Energy:
    """Returns UNKNOWN when the coefficients cannot be read: work does not wait for somebody to fix them."""
    try:
        return estimate(coefficients_of(services), usage)
    except KfmError as error:
        log.warning("energy is unknown: %s", error)
        return UNKNOWN
