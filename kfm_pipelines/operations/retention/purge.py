"""Purge: forget what has been kept long enough, and nothing that anything still depends on.

Of each object the event that counts stays for ever, since its key is computed from it; so does every removal. What goes
are events older than the backfill window whose absence can never change what counts, the payloads of old settled dead
letters, what candidates made whose comparison no longer counts, and old findings and validation reports. The write of a
version stays as long as S3 has the version: a newer one may be purged, and then it counts. So does what a newer event
replaced that may turn out late one day, and be held.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kfm_pipelines.declarations.dataset import pipeline_of
from kfm_pipelines.events import superseded_identities
from kfm_pipelines.operations.canary.shadow_store import purge_shadows
from kfm_pipelines.operations.retention.tables import delete_old_findings, expired_verdicts, record_reports_purged
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
    return PurgeSummary(
        events=_purge_events(services),
        payloads=_purge_payloads(services),
        refused_tables=remove_outdated(services),
        shadows=purge_shadows(services),
        findings=delete_old_findings(services.database, days=services.settings.findings_days, limit=FINDINGS_AT_ONCE),
        reports=purge_reports(services),
    )


def _purge_events(services: Services) -> int:
    return sum(_purge_key(services, key) for key in _keys_to_purge(services))


def _keys_to_purge(services: Services) -> Iterator[str]:
    """Every key with an old event and with two about one object, page by page in the order of keys."""
    page = [""]
    while page:
        rows = services.database.fetch(
            """
            SELECT key FROM kfm.inbox WHERE key > %(after)s GROUP BY key
            HAVING count(*) > count(DISTINCT asset_uri)
               AND min(received_at) < clock_timestamp() - make_interval(days => %(days)s)
            ORDER BY key LIMIT %(limit)s
            """,
            {"after": page[-1], "days": services.settings.inbox_days, "limit": KEYS_AT_ONCE},
        )
        page = [row["key"] for row in rows]
        yield from page


def _purge_key(services: Services, key: str) -> int:
    with services.database.transaction() as connection:
        connection.execute("SELECT FROM kfm.keys WHERE key = %(key)s FOR UPDATE", {"key": key})
        own = [event for event in events_of(connection, key) if event.key == key]
        held_one_day = find_holdable_events(connection, services.datasets, key)
        past = connection.execute(
            """
            SELECT identity FROM kfm.inbox WHERE identity = ANY(%(replaceable)s) AND state = 'succeeded'
              AND archived_at IS NOT NULL AND received_at < clock_timestamp() - make_interval(days => %(days)s)
            """,
            {"replaceable": list(superseded_identities(own, held_one_day)), "days": services.settings.inbox_days},
        ).fetchall()
        identities = {"identities": [row["identity"] for row in past]}
        connection.execute("DELETE FROM kfm.late WHERE identity = ANY(%(identities)s)", identities)
        return connection.execute("DELETE FROM kfm.inbox WHERE identity = ANY(%(identities)s)", identities).rowcount


def _purge_payloads(services: Services) -> int:
    """The last so many closed letters keep their message; of older ones the record stays. Quarantine keeps all."""
    return services.database.execute(
        """
        UPDATE kfm.dead_letters SET body = '' WHERE body <> '' AND id IN (
            SELECT id FROM kfm.dead_letters WHERE state = 'closed' AND body <> '' ORDER BY id DESC OFFSET %(kept)s)
        """,
        {"kept": services.settings.payloads_kept},
    )


def purge_reports(services: Services) -> int:
    """Remove the reports of transactions that were judged long ago, also of datasets that are declared no more; how
    many. The verdicts themselves stay on record."""
    past = expired_verdicts(services.database, days=services.settings.findings_days, limit=VERDICTS_AT_ONCE)
    reports = {Layout(pipeline_of(one.dataset)).validation_report(one.key, one.txn) for one in past}
    for path in sorted(reports):
        services.store.discard(path)
    if past:
        record_reports_purged(services.database, past[-1].at)
    return len(reports)
