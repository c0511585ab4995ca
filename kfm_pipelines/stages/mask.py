"""Masks a key's table as the dataset's policy requires, before anything leaves the restricted tier."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.governance import KeyRules
from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.published_table import published_table
from kfm_pipelines.data_files import TABLE_ALONE, Attachments
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.gates import Finding
from kfm_pipelines.parquet.parquet import read_parquet, write_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.raster_mask import mask_pixels
from kfm_pipelines.stages.validate.table_gates import judge_before_masking
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.stores import Layout
from kfm_pipelines.stores.work import read_attachments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MaskResult:
    """The table that may be published, and the crosswalk from unmasked rows; None when nothing was masked."""

    table: "pa.Table"
    crosswalk: "pa.Table | None" = None
    measures: Mapping[str, Any] = field(default_factory=dict)
    attachments: Attachments = TABLE_ALONE
    findings: tuple[Finding, ...] = ()  # about the table before it was masked; none is an error


def mask(table: "pa.Table", dataset: Dataset, policy: Policy, secret: bytes) -> MaskResult:
    """Applies the policy. Raises PolicyRefused without any value from the data in its message."""
    if policy.is_open:
        return MaskResult(table)
    try:
        masked = mask_table(table, dataset, policy, secret)
    except PolicyRefused:
        raise
    except Exception as error:  # noqa: BLE001 - its message may quote the data
        raise PolicyRefused(f"masking failed: {type(error).__name__}; nothing is published") from None
    declared = declared_schema(published_table(dataset, policy))
    return MaskResult(masked.table.cast(declared), masked.crosswalk, asdict(masked.measures))


def masking_audit_entry(
    dataset: Dataset, claim: Claim, rules: KeyRules, content_hash: str, result: MaskResult
) -> AuditEntry:
    action, detail = Action.MASKED, dict(result.measures)
    if rules.exemption is not None:
        action, detail = Action.EXEMPTED, {"exemption": rules.exemption.id, "by": rules.exemption.signed.holder}
    elif not rules.masks:
        action = Action.LEFT_OPEN
    return audit_entry(action, dataset, claim, rules.policy, content_hash, detail)


def audit_entry(
    action: Action, dataset: Dataset, claim: Claim, policy: Policy, digest: str, detail: Mapping[str, Any]
) -> AuditEntry:
    actor = f"run {claim.owner}"
    return AuditEntry(action, actor, dataset.dataset, policy.name, claim.key, claim.epoch, digest, detail)


def _mask_raster(attachments: Attachments, dataset: Dataset, rules: KeyRules) -> MaskResult:
    try:
        computed, measures = mask_pixels(attachments, dataset, rules)
    except PolicyRefused:
        raise
    except Exception as error:  # noqa: BLE001 - its message may quote the data
        raise PolicyRefused(f"masking failed: {type(error).__name__}; nothing is published") from None
    return MaskResult(computed.table, measures=measures, attachments=computed.attachments)


def mask_computed(services: Services, config: KeyConfig, claim: Claim) -> MaskResult:
    """Masks the table that `compute` has left for this claim."""
    dataset, rules = config.dataset, config.rules(claim.key)
    layout = Layout(dataset.pipeline)
    path = layout.computed_table(claim.key, claim.epoch)
    table = services.store.read_table(path, partial(read_parquet, name=claim.key))
    attachments = read_attachments(services.store, partial(layout.computed_file, claim.key, claim.epoch))
    if not rules.masks:
        return MaskResult(table, attachments=attachments)
    if attachments:
        return _mask_raster(attachments, dataset, rules)
    data = services.store.read_work(path)
    findings = judge_before_masking(services, config, claim, data, table)
    outcome = mask(table, dataset, rules.policy, rules.secret)
    if outcome.crosswalk is not None:
        path = layout.crosswalk(claim.key, claim.epoch)
        services.store.write(path, write_parquet(outcome.crosswalk))
    return replace(outcome, findings=findings)
