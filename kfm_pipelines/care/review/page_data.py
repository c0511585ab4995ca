"""Builds the review page from what is staged; with the true places only for reviewers."""

from pathlib import Path

from kfm_pipelines.care.governance import Oversight, oversight_of
from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.review import tables
from kfm_pipelines.care.review.maps import draw_original_map, draw_release_map
from kfm_pipelines.care.review.page import content
from kfm_pipelines.care.review.page.page import render_page
from kfm_pipelines.care.review.page.sentences import measure_rows, rule_sentences
from kfm_pipelines.care.review.page.view import compare_releases, sample_rows
from kfm_pipelines.care.review.tables import PendingReview
from kfm_pipelines.care.tables import exemptions_of
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ReviewRefused
from kfm_pipelines.parquet.parquet import read_parquet
from kfm_pipelines.services import Services
from kfm_pipelines.state import audit, wal
from kfm_pipelines.state.audit import Action
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.state.wal import Step
from kfm_pipelines.stores import Layout


def review_page(services: Services, key: str, private_key: Path | None) -> str:
    """Returns HTML. With a key of the authority it includes the data before masking, and the read is audited."""
    pending = tables.pending_review(services.database, key)
    dataset = services.datasets[pending.dataset]
    oversight = oversight_of(services, dataset)
    _refuse_if_unmasked(oversight, key, private_key)
    before_map = None
    if private_key is not None:
        # Runs before anything is read: the reader must prove their authority.
        statement = {"statement": "restricted-read", "key": pending.key, "release": pending.release_digest}
        signed = oversight.sign(statement, private_key)
        detail = {"key_id": signed.key_id, "signature": signed.signature}
        entry = tables.audit_entry(Action.RESTRICTED_READ, pending, signed, oversight.policy.name, detail)
        with oversight.services.database.transaction() as connection:
            audit.record(connection, [entry])
        original = services.store.read(Layout(dataset.pipeline).computed_table(key, pending.txn))
        before_map = draw_original_map(services, dataset, key, read_parquet(original, key))
    return render_page(_view(oversight, pending, before_map))


def _refuse_if_unmasked(oversight: Oversight, key: str, private_key: Path | None) -> None:
    """Raises ReviewRefused without a key when an exemption would publish the data unmasked: it is not public yet."""
    given = exemptions_of(oversight.services.database, oversight.dataset.dataset)
    covering = [one.id for one in given if one.covers(key)]
    if covering and private_key is None and not oversight.policy.is_open:
        raise ReviewRefused(
            f"{key}: under {covering[0]} it would go out unmasked; it takes a reviewer's --key to see it"
        )


def _view(oversight: Oversight, pending: PendingReview, before_map: bytes | None) -> content.ReviewView:
    services, dataset, policy = oversight.services, oversight.dataset, oversight.policy
    layout = Layout(dataset.pipeline)
    published = read_parquet(services.store.read(layout.staged_data(pending.key, pending.txn)), pending.key)
    current = current_revision(services.database, pending.key)
    previous = read_parquet(services.store.read(layout.content(current.content_hash)), pending.key) if current else None
    return content.ReviewView(
        key=pending.key,
        title=dataset.title,
        dataset=dataset.dataset,
        window=pending.key.split(":")[3],
        revision=pending.release["revision"],
        release_digest=pending.release_digest,
        content_hash=pending.release["content_hash"],
        policy=_policy_view(policy, oversight),
        verification=_verification(services, pending),
        measures=measure_rows(_measures(services, pending)),
        sample=sample_rows(published, wording=policy.wording),
        difference=compare_releases(previous, published),
        after_map=draw_release_map(services, dataset, pending.key, published),
        before_map=before_map,
        restricted=before_map is not None,
    )


def _policy_view(policy: Policy, oversight: Oversight) -> content.PolicyView:
    return content.PolicyView(
        name=policy.name,
        reason=policy.reason,
        authority=oversight.authority.name,
        reviewed_on=policy.reviewed_on.isoformat(),
        review_by=policy.review_by.isoformat(),
        labels=tuple(policy.labels),
        rules=tuple(rule_sentences(policy)),
        minimum_count=policy.minimum_count,
        key_id=policy.key_id,
        kept=tuple(policy.columns.keep),
        withheld=(*policy.columns.withhold, *_dropped_columns(oversight.dataset, policy)),
        wording=policy.wording,
    )


def _dropped_columns(dataset: Dataset, policy: Policy) -> list[str]:
    """Returns columns with a place that the published table does not have at all."""
    if policy.is_open:
        return []
    main = {dataset.table.longitude_column, dataset.table.latitude_column, dataset.table.geometry_column}
    return [name for name in dataset.table.place_columns if name not in main]


def _verification(services: Services, pending: PendingReview) -> content.Verification:
    query = """
        SELECT passed, findings FROM kfm.verdicts
        WHERE key = %(key)s AND txn = %(txn)s AND gate = 'care' AND content_hash = %(digest)s
    """
    rows = services.database.fetch(query, {"key": pending.key, "txn": pending.txn, "digest": pending.release_digest})
    if not rows:
        return content.Verification(False, ("there is no verdict about this release",))
    findings = tuple(f"{f['subject']}: expected {f['expected']}, found {f['measured']}" for f in rows[0]["findings"])
    return content.Verification(bool(rows[0]["passed"]), findings)


def _measures(services: Services, pending: PendingReview) -> dict[str, object]:
    with services.database.transaction() as connection:
        masked = wal.entry_of(connection, pending.key, pending.txn, Step.MASK)
    measures = dict(masked.detail["measures"]) if masked else {}
    # Without displacement there is no distance.
    return {name: value for name, value in measures.items() if name != "displacement_m" or value is not None}
