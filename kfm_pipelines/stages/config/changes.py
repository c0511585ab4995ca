"""What changed in the configuration since a key was published, and which policy changes are refused.

Keys mostly share their snapshots, so each one is compared once for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from kfm_pipelines.care.governance import Governance, governance_of
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import (
    DECLARATION,
    ENVIRONMENT,
    Document,
    environment_document,
    load_declaration,
)
from kfm_pipelines.state.audit import load_snapshot
from kfm_pipelines.state.last_transaction import AppliedConfig, applied_configs, masking_policies

MAX_LIBRARIES_LISTED = 5

UNPUBLISHED = "nothing of it is published, so there is nothing to reproduce"
NO_SNAPSHOT = "it was published before configurations were kept"


def configuration_changes(services: Services, dataset: Dataset, keys: Sequence[str]) -> dict[str, list[str]]:
    """Returns for each key why it cannot be reproduced now. `dataset` is the current declaration."""
    known = applied_configs(services.database, keys)
    governance = cache(partial(governance_of, services, dataset))

    @cache
    def declaration(digest: str) -> list[str]:
        return declaration_changes(load_declaration(services, digest), dataset)

    @cache
    def environment(digest: str) -> list[str]:
        now = environment_document(services.settings.store_url)
        return environment_changes(load_snapshot(services.database, digest), now)

    def changes_since(then: AppliedConfig) -> list[str]:
        if then.frozen is None or then.policy is None:
            return [NO_SNAPSHOT]
        return [
            *declaration(then.frozen[DECLARATION]),
            *_policy_changes(governance(), then.key, then.policy, then.exemption),
            *environment(then.frozen[ENVIRONMENT]),
            *_signer_changes(then.signed_by, signer_of(services).public.key_id),
        ]

    return {key: changes_since(known[key]) if key in known else [UNPUBLISHED] for key in keys}


def _policy_changes(
    governance: Governance, key: str, then: Mapping[str, str], past_exemption: str | None
) -> Iterator[str]:
    now, granted = governance.policy, governance.exemption_for(key)
    exemption = granted.id if granted else None
    if then["name"] != now.name:
        yield f"the policy was {then['name']} and is {now.name}"
    elif then["sha256"] != now.digest:
        yield f"policy {now.name} is not what it was"
    if past_exemption != exemption:
        yield f"it was made under {_format_exemption(past_exemption)} and is under {_format_exemption(exemption)}"


def _signer_changes(then: str, now: str) -> Iterator[str]:
    if then != now:
        yield f"it was signed with key {then[:12]}, and releases are signed with {now[:12]} now"


def _format_exemption(exemption: str | None) -> str:
    return f"exemption {exemption}" if exemption else "no exemption"


def refuse_laxer_policy(services: Services, dataset: Dataset, source_key: str) -> None:
    """Raises PolicyRefused unless masked inputs stay under the policy that masked them: a transform version that names
    another one would bypass its authorities."""
    for reason in laxer_policies(services, dataset, [source_key]).values():
        raise PolicyRefused(f"{source_key}: {reason}")


def laxer_policies(services: Services, dataset: Dataset, source_keys: Sequence[str]) -> dict[str, str]:
    """Returns the keys whose inputs were masked by another policy than the declared one, with the reason for each."""
    return {
        key: f"its inputs are masked by policy {policy}, and {dataset.dataset}@{dataset.key.transform_version} names "
        f"{dataset.policy}; what is shown of them is changed by a new version of {policy}, not by another policy"
        for key, policy in masking_policies(services.database, source_keys).items()
        if policy != dataset.policy
    }


def declaration_changes(then: Dataset, now: Dataset) -> list[str]:
    """Lists the fields that shape the bytes and differ, if the transform version is the same."""
    if then.key.transform_version != now.key.transform_version:
        return []
    return [
        f"the declaration's {field} has changed"
        for field in _differing_fields(then.digest_document, now.digest_document)
    ]


def environment_changes(then: Document, now: Document) -> list[str]:
    """Lists the differences in software and store, libraries first."""
    before, after = then["libraries"], now["libraries"]
    libraries = [
        f"{name} {before.get(name, 'not installed')} -> {after.get(name, 'not installed')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if len(libraries) > MAX_LIBRARIES_LISTED:
        libraries[MAX_LIBRARIES_LISTED:] = [f"{len(libraries) - MAX_LIBRARIES_LISTED} more libraries"]
    others = [
        f"{field} {_format_value(then, field)} -> {_format_value(now, field)}"
        for field in _differing_fields(then, now)
        if not field.startswith("libraries")
    ]
    return libraries + others


def _differing_fields(then: Document, now: Document, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of the fields that differ."""
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differing_fields(before, after, f"{prefix}{name}.")
        elif before != after:
            yield prefix + name


def _format_value(document: Document, field: str) -> str:
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "unknown" if value is None else str(value)
