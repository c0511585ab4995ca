"""Checks a derived dataset against its upstreams: that they fit it, and that it is not more open than they are."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kfm_pipelines.care.policies import load_policy
from kfm_pipelines.care.upstreams import debts
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.upstreams import upstream_faults
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.datasets.check.problem import Problem
from kfm_pipelines.operations.datasets.check.source import DeclarationText


def derivation_problems(
    resources: Path, dataset: Dataset, datasets: Mapping[str, Dataset], source: DeclarationText
) -> Iterator[Problem]:
    with suppress(AttributeError):  # a section that it needs is wrong
        found = list(upstream_faults(dataset, datasets))
        yield from (source.problem(fault.path, fault.sentence) for fault in found)
        with suppress(KfmError):  # a policy that cannot be loaded is reported elsewhere
            if not found:
                policy = load_policy(resources, dataset.policy)
                owed = debts(dataset, policy, datasets, lambda one: load_policy(resources, one.policy))
                yield from [source.problem(("policy",), sentence) for sentence in owed]
