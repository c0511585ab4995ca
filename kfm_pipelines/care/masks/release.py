"""Entry point of the masks. On any failure nothing is released, and no message quotes the data."""

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PolicyRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from kfm_pipelines.care.masks.measures import Measures

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class MaskingResult:
    table: "pa.Table"  # in the form that `published_table` declares
    crosswalk: "pa.Table"  # row of the unmasked table → record; stays in the restricted tier
    measures: "Measures"


def mask_table(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> MaskingResult:
    """Applies the policy's rule for its class to every record; raises PolicyRefused unless all can be masked."""
    # Loads numpy, pyarrow and shapely, which loading the definitions must not.
    from kfm_pipelines.care.masks.table import mask

    try:
        return MaskingResult(*mask(table, dataset, policy, secret))
    except PolicyRefused:
        raise
    except Exception as error:  # noqa: BLE001 - any message may quote the data
        failure = f"masking failed: {type(error).__name__} in {_innermost_module(error.__traceback__)}"
    # Raised outside the handler so that not even its context leads to the original error.
    raise PolicyRefused(failure)


def _innermost_module(traceback: TracebackType | None) -> str:
    """Returns the innermost module of this package that the error passed through."""
    innermost = "masks"
    while traceback is not None:
        package, _, module = str(traceback.tb_frame.f_globals.get("__name__")).rpartition(".")
        innermost = module if package == _PACKAGE else innermost
        traceback = traceback.tb_next
    return innermost
