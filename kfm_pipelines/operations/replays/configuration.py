"""Everything that shapes what a replay makes, as one document: the plan is for exactly this."""

from collections.abc import Iterable
from typing import Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.gates.expectations import suite_digest
from kfm_pipelines.operations.environment import environment_facts
from kfm_pipelines.operations.governance import governance_of, used_policy
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.transforms import source_digest
from kfm_pipelines.state.frozen import digest_of
from kfm_pipelines.state.replays import Mode, Replay


def frozen_config(workshop: Workshop, dataset: Dataset, mode: Mode, declarations: Iterable[str]) -> dict[str, Any]:
    """`declarations` are the digests of those that made what is to be reproduced."""
    governance = governance_of(workshop, dataset)
    policy, suites = governance.policy, (dataset.quality.suite, dataset.quality.deep_suite)
    software = environment_facts()
    return {
        "mode": mode,
        "declaration": digest_of(dataset.model_dump(mode="json")),
        "declarations": sorted(set(declarations)),
        "transform": source_digest(dataset.transform),
        "suites": {name: suite_digest(workshop.settings.resources, name) for name in suites if name},
        "policy": {
            "name": policy.name,
            "digest": policy.digest,
            "secret": used_policy(policy, governance.secret).key_check,
        },
        "exemptions": sorted(one.id for one in governance.exemptions),
        "environment": {
            "python": software.python,
            "implementation": software.implementation,
            "kfm": software.kfm,
            "commit": software.commit,
            "sbom": software.sbom,
        },
    }


def changed_since(workshop: Workshop, replay: Replay) -> list[str]:
    """Which parts of the configuration are not what the plan was for, by name."""
    dataset = workshop.datasets[replay.dataset]
    now = frozen_config(workshop, dataset, replay.mode, replay.config["declarations"])
    return differences(dict(replay.config), now)


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which parts are not what they were, by name."""
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
