"""Keys made from the inputs of others: what was masked once is masked by the same policy, whatever is declared now.

The rule for candidates (`care.policies.refuse_if_exchanged`), for history: whoever is named in a policy decides what is
shown, by a new version of it. A new version of a transform that named another policy would show all there ever was
without a word from them.
"""

from collections.abc import Sequence

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.services import Services
from kfm_pipelines.state.last_transaction import masking_policies


def refuse_laxer_policy(services: Services, dataset: Dataset, source_key: str) -> None:
    """PolicyRefused when nothing may be made from the inputs of this key under the policy that is declared now."""
    for reason in laxer_policies(services, dataset, [source_key]).values():
        raise PolicyRefused(f"{source_key}: {reason}")


def laxer_policies(services: Services, dataset: Dataset, source_keys: Sequence[str]) -> dict[str, str]:
    """Why nothing may be made from the inputs of some of these keys; thousands at once. `dataset` is as declared
    now."""
    return {
        key: f"its inputs are masked by policy {policy}, and {dataset.dataset}@{dataset.key.transform_version} names "
        f"{dataset.policy}; what is shown of them is changed by a new version of {policy}, not by another policy"
        for key, policy in masking_policies(services.database, source_keys).items()
        if policy != dataset.policy
    }
