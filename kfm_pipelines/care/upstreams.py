"""What a derived dataset owes its upstreams: it may show no more of them than they do, and says what they say."""

from collections.abc import Callable, Iterator, Mapping

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.upstreams import Upstream
from kfm_pipelines.errors import PolicyRefused

LoadPolicy = Callable[[Dataset], Policy]


def refuse_more_open(
    dataset: Dataset, policy: Policy, datasets: Mapping[str, Dataset], load_policy: LoadPolicy
) -> None:
    """Raises PolicyRefused if a derived dataset is more open than one of its upstreams."""
    for sentence in debts(dataset, policy, datasets, load_policy):
        raise PolicyRefused(sentence)


def debts(dataset: Dataset, policy: Policy, datasets: Mapping[str, Dataset], load_policy: LoadPolicy) -> Iterator[str]:
    """Yields what a derived dataset must declare before it may be published."""
    for one in dataset.input.upstream:
        upstream = datasets[one.dataset]
        for reason in _reasons(dataset, policy, one, upstream, load_policy(upstream)):
            yield f"{dataset.dataset} cannot be made of {upstream.dataset}: {reason}"


def _reasons(
    dataset: Dataset, policy: Policy, declared: Upstream, upstream: Dataset, upstream_policy: Policy
) -> Iterator[str]:
    if policy.is_open and not upstream_policy.is_open:
        yield f"policy {upstream_policy.name} masks it, and policy {policy.name} would publish everything"
    if upstream.review == "required" and dataset.review != "required":
        yield "its releases need a review, so these need one too; declare review: required"
    if upstream.sovereignty is not None and dataset.sovereignty is None:
        yield "it is a nation's, and every reader must be told; declare sovereignty"
    missing = [label for label in upstream_policy.labels if label not in policy.labels]
    if missing:
        yield f"policy {policy.name} must have its labels too, and lacks {', '.join(missing)}"
    names = [column.name for column in published_table(upstream, upstream_policy).columns]
    unknown = [name for name in declared.cells.columns if name not in names]
    if unknown:
        yield f"{unknown[0]!r}, which is to give the cells, is not one of its published columns {', '.join(names)}"
