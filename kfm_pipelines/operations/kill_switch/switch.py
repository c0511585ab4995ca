"""Kills and unkills datasets, with a name and a reason."""

from kfm_pipelines.errors import DatasetUnknown, SwitchRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.text import make_storable, quote_value, truncate_line

MAX_REASON_LENGTH = 500
MAX_NAME_LENGTH = 100


def kill(services: Services, dataset: str, by: str, reason: str) -> None:
    """Kills a dataset: once this returns, nothing of it is published, not even by runs that have begun."""
    _refuse_unknown(services, dataset)
    kill_switch.kill(services.database, dataset, _clean_name(by), _clean_reason(reason))


def unkill(services: Services, dataset: str, by: str, reason: str) -> bool:
    """Lets a dataset continue with everything that is due. Returns False when it was not killed."""
    _refuse_unknown(services, dataset)
    return kill_switch.unkill(services.database, dataset, _clean_name(by), _clean_reason(reason))


def _refuse_unknown(services: Services, dataset: str) -> None:
    """Refuses a mistyped name, which would stop nothing. A dataset with keys is known without its declaration."""
    if kill_switch.is_known(services.database, make_storable(dataset)) or dataset in services.datasets:
        return
    known = ", ".join(services.datasets) or "none"
    raise DatasetUnknown(f"dataset {quote_value(dataset)} is not declared and has no keys; declared: {known}")


def _clean_reason(text: str) -> str:
    return _require_text(text, MAX_REASON_LENGTH, "say why: it is all that explains the switch to others")


def _clean_name(text: str) -> str:
    return _require_text(text, MAX_NAME_LENGTH, "say who you are: others will want to ask")


def _require_text(text: str, max_length: int, message: str) -> str:
    cleaned = truncate_line(make_storable(text), max_length).strip()
    if not cleaned:
        raise SwitchRefused(message)
    return cleaned
