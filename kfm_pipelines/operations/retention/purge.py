"""The purge deletes what has been kept long enough; current events, removals and uncertain ones stay."""

from dataclasses import dataclass

from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.events import superseded_identities
from kfm_pipelines.operations.canary.shadow_store import purge_shadows
from kfm_pipelines.operations.retention import tables
from kfm_pipelines.services import Services
from kfm_pipelines.stages.validate.report import remove_outdated
from kfm_pipelines.state.inbox import events_of
from kfm_pipelines.stores import Layout
from kfm_pipelines.watermarks.late_lane import find_holdable_events

VERDICTS_AT_ONCE = 20_000
KEYS_AT_ONCE = 1000
FINDINGS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class PurgeSummary:
    events: int
    payloads: int
    refused_tables: int
    shadows: int
    findings: int
    reports: int


def purge(services: Services) -> PurgeSummary:
    database, settings = services.database, services.settings
    keys = tables.keys_with_old_events(database, days=settings.inbox_days, page_size=KEYS_AT_ONCE)
    return PurgeSummary(
        events=sum(_purge_key(services, key) for key in keys),
        payloads=tables.delete_old_payloads(database, kept=settings.payloads_kept),
        refused_tables=remove_outdated(services),
        shadows=purge_shadows(services),
        findings=tables.delete_old_findings(database, days=settings.findings_days, limit=FINDINGS_AT_ONCE),
        reports=purge_reports(services),
    )


def _purge_key(services: Services, key: str) -> int:
    with services.database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": key})
        own = [event for event in events_of(connection, key) if event.key == key]
        superseded = superseded_identities(own, find_holdable_events(connection, services.datasets, key))
        return tables.delete_old_events(connection, superseded, days=services.settings.inbox_days)


def purge_reports(services: Services) -> int:
    """Deletes the validation reports of old transactions, also of datasets no longer declared. Verdicts stay."""
    expired = tables.expired_verdicts(services.database, days=services.settings.findings_days, limit=VERDICTS_AT_ONCE)
    reports = {Layout(pipeline_of(one.dataset)).validation_report(one.key, one.txn) for one in expired}
    for path in sorted(reports):
        services.store.discard(path)
    if expired:
        tables.record_reports_purged(services.database, expired[-1].at)
    return len(reports)
