"""The kill switch as operators use it."""

from kfm_pipelines.errors import DatasetUnknown, SwitchRefused
from kfm_pipelines.services import Workshop
from kfm_pipelines.state import kill_switch
from kfm_pipelines.text import one_line, quoted, storable

LONGEST_REASON = 500
LONGEST_NAME = 100


def kill(workshop: Workshop, dataset: str, by: str, reason: str) -> None:
    """When this returns nothing of the dataset is published any more, whatever is under way."""
    _refuse_unknown(workshop, dataset)
    kill_switch.kill(workshop.database, dataset, _name(by), _reason(reason))


def unkill(workshop: Workshop, dataset: str, by: str, reason: str) -> bool:
    """Let the dataset go on with all that is due; False when it was not killed."""
    _refuse_unknown(workshop, dataset)
    return kill_switch.unkill(workshop.database, dataset, _name(by), _reason(reason))


def _refuse_unknown(workshop: Workshop, dataset: str) -> None:
    """A name that is mistyped would stop nothing. What has keys is known even if the declarations cannot be read."""
    if kill_switch.is_known(workshop.database, storable(dataset)) or dataset in workshop.datasets:
        return
    known = ", ".join(workshop.datasets) or "none"
    raise DatasetUnknown(f"dataset {quoted(dataset)} is not declared and has no keys; declared: {known}")


def _reason(text: str) -> str:
    return _said(text, LONGEST_REASON, "say why: whoever finds the dataset like this has nothing else to go by")


def _name(text: str) -> str:
    return _said(text, LONGEST_NAME, "say who moves the switch: others will want to ask")


def _said(text: str, longest: int, otherwise: str) -> str:
    said = one_line(storable(text), longest).strip()
    if not said:
        raise SwitchRefused(otherwise)
    return said
