"""Entry point of the verifier."""

from concurrent.futures import ThreadPoolExecutor

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.verifier.evidence import Breach, Evidence, EvidenceUnreadable, read_item
from kfm_pipelines.declarations.dataset import Dataset

_THREADS = 2  # more would hold more intermediate arrays at once


def verify(policy: Policy, dataset: Dataset, evidence: Evidence) -> tuple[Breach, ...]:
    """Returns a breach for every rule that does not hold; a release is green only when there are none."""
    # Loads numpy, pyarrow and shapely, which loading the definitions must not.
    from kfm_pipelines.care.verifier.case import open_case
    from kfm_pipelines.care.verifier.rules.item import check_governance_properties
    from kfm_pipelines.care.verifier.stages import first_breaches

    try:
        item = read_item(evidence.item)
        if policy.is_open:
            return tuple(check_governance_properties(policy, dataset, item))
        with ThreadPoolExecutor(_THREADS) as executor:  # nearly all of the work releases the GIL
            return first_breaches(open_case(policy, dataset, evidence, item, executor), executor)
    except EvidenceUnreadable as unreadable:
        return (unreadable.breach,)
