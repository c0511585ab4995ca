"""Kills and unkills datasets, with a name and a reason."""

from kfm_pipelines.errors import DatasetUnknown, SwitchRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.text import make_storable, quote_value, truncate_line

MAX_REASON_LENGTH = 500
MAX_NAME_LENGTH = 100


def kill(services: Services, dataset: str, by: str, reason: str) -> None:
    """Kills a dataset: once this returns, nothing of it is published, not even by runs that have begun."""
    kill_switch.kill(services.database, dataset, *_check_request(services, dataset, by, reason))


def unkill(services: Services, dataset: str, by: str, reason: str) -> bool:
    """Lets a dataset continue with everything that is due. Returns False when it was not killed."""
    return kill_switch.unkill(services.database, dataset, *_check_request(services, dataset, by, reason))


def _check_request(services: Services, dataset: str, by: str, reason: str) -> tuple[str, str]:
    """Returns name and reason as stored. A dataset with keys is known without its declaration."""
    if not kill_switch.is_known(services.database, make_storable(dataset)) and dataset not in services.datasets:
        known = ", ".join(services.datasets) or "none"
        raise DatasetUnknown(f"dataset {quote_value(dataset)} is not declared and has no keys; declared: {known}")
    name = _require_text(by, MAX_NAME_LENGTH, "say who you are: others will want to ask")
    return name, _require_text(reason, MAX_REASON_LENGTH, "say why: it is all that explains the switch to others")


def _require_text(text: str, max_length: int, message: str) -> str:
    cleaned = truncate_line(make_storable(text), max_length).strip()
    if not cleaned:
        raise SwitchRefused(message)
    return cleaned
