"""Findings of the gates, approved schemas, the kill switch, red bytes kept for inspection, canaries, scans."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FINDINGS = r"""
ALTER TABLE kfm.verdicts ADD COLUMN rules text[] NOT NULL DEFAULT '{}', ADD COLUMN report jsonb;
COMMENT ON COLUMN kfm.verdicts.rules IS 'what was looked at, whether it held or not';
CREATE INDEX keys_by_window ON kfm.keys (dataset, split_part(key, ':', 5), window_start);
CREATE INDEX verdicts_by_time ON kfm.verdicts (at);
CREATE TABLE kfm.qa_findings (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id   text NOT NULL,
    dataset  text NOT NULL,
    key      text,
    txn      bigint,
    gate     text NOT NULL,
    rule     text NOT NULL,
    severity text NOT NULL CHECK (severity IN ('info', 'warn', 'error')),
    subject  text NOT NULL,
    expected text NOT NULL,
    measured text NOT NULL,
    sample   text NOT NULL DEFAULT ''
);
COMMENT ON COLUMN kfm.qa_findings.txn IS 'the transaction that was judged; null for a scan of what is published';
CREATE INDEX qa_findings_of_dataset ON kfm.qa_findings (dataset, at);
CREATE INDEX qa_findings_of_key ON kfm.qa_findings (key, id) WHERE key IS NOT NULL;
CREATE INDEX qa_findings_of_run ON kfm.qa_findings (run_id, id);
-- Scans add to it for ever, so the nightly purge may take what is old; nobody takes or changes what is not. 30 days is
-- also the least that the purge can be told to keep.
CREATE TRIGGER append_only BEFORE UPDATE ON kfm.qa_findings FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
CREATE TRIGGER kept_for_a_while BEFORE DELETE ON kfm.qa_findings FOR EACH ROW
    WHEN (OLD.at > clock_timestamp() - interval '30 days') EXECUTE FUNCTION kfm.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON kfm.qa_findings EXECUTE FUNCTION kfm.refuse_change();

CREATE TABLE kfm.purge_marks (
    what text PRIMARY KEY,
    upto timestamptz NOT NULL
);
COMMENT ON TABLE kfm.purge_marks IS 'how far a purge of files has come whose records stay';

CREATE TABLE kfm.scans (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id     text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('nightly', 'deep', 'extents')),
    dataset    text NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    keys       integer NOT NULL CHECK (keys >= 0),
    errors     integer NOT NULL CHECK (errors >= 0),
    warnings   integer NOT NULL CHECK (warnings >= 0),
    detail     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX scans_of_dataset ON kfm.scans (dataset, kind, id);

CREATE TABLE kfm.scanned (
    key      text PRIMARY KEY REFERENCES kfm.keys,
    revision integer NOT NULL,
    errors   integer NOT NULL CHECK (errors >= 0),
    found    text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE kfm.scanned IS 'the revision of a key that a scan has looked at; with errors, the next one will again';
COMMENT ON COLUMN kfm.scanned.found IS 'digest of what was found, so that the same is not written down every night';
"""

SCHEMAS = r"""
CREATE TABLE kfm.schema_versions (
    dataset     text NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    transform_version text NOT NULL,
    digest      text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    columns     jsonb NOT NULL,
    approved_by text NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset, version)
);
COMMENT ON TABLE kfm.schema_versions IS 'the first is what the dataset began with; each later one somebody approved';
COMMENT ON COLUMN kfm.schema_versions.transform_version IS
    'keys of this version have it, and those of versions nobody has approved anything for';
"""

KILLS = r"""
CREATE TABLE kfm.kill_moves (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset text NOT NULL,
    killed  boolean NOT NULL,
    actor   text NOT NULL,
    reason  text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX kill_moves_of_dataset ON kfm.kill_moves (dataset, id);
CREATE VIEW kfm.killed AS
    SELECT dataset, actor, reason, at
    FROM (SELECT DISTINCT ON (dataset) * FROM kfm.kill_moves ORDER BY dataset, id DESC) AS last
    WHERE killed;
COMMENT ON VIEW kfm.killed IS 'datasets of which nothing is published until somebody says so';
"""

RED = r"""
CREATE TABLE kfm.inspections (
    key        text NOT NULL REFERENCES kfm.keys,
    txn        bigint NOT NULL,
    folder     text NOT NULL,
    until      timestamptz NOT NULL,
    removed_at timestamptz,
    PRIMARY KEY (key, txn)
);
COMMENT ON TABLE kfm.inspections IS 'red bytes that are kept in the restricted tier for a while, to look at';
CREATE INDEX inspections_kept ON kfm.inspections (until) WHERE removed_at IS NULL;
"""

CANARY = r"""
CREATE TABLE kfm.comparisons (
    dataset           text NOT NULL,
    key               text NOT NULL REFERENCES kfm.keys,
    candidate_version text NOT NULL,
    candidate_digest  text NOT NULL,
    content_hash      text NOT NULL,
    good              boolean NOT NULL,
    report            jsonb NOT NULL,
    run_id            text NOT NULL,
    at                timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key, candidate_digest, content_hash)
);
COMMENT ON TABLE kfm.comparisons IS 'what a candidate transform made of a key, next to what is published of it';
CREATE INDEX comparisons_of_candidate ON kfm.comparisons (dataset, candidate_digest);
CREATE INDEX comparisons_of_run ON kfm.comparisons (run_id, at);

CREATE TABLE kfm.promotions (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset          text NOT NULL,
    from_version     text NOT NULL,
    to_version       text NOT NULL,
    candidate_digest text NOT NULL,
    actor            text NOT NULL,
    reason           text NOT NULL,
    report           jsonb NOT NULL,
    at               timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

APPEND_ONLY = ("schema_versions", "kill_moves", "promotions")


def upgrade() -> None:
    for statements in (FINDINGS, SCHEMAS, KILLS, RED, CANARY):
        op.execute(statements)
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.{table}"
            " FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change()"
        )
        op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON kfm.{table} EXECUTE FUNCTION kfm.refuse_change()")


def downgrade() -> None:
    op.execute("DROP VIEW kfm.killed")
    op.execute(
        "DROP TABLE kfm.promotions, kfm.comparisons, kfm.inspections, kfm.kill_moves, kfm.schema_versions, kfm.scanned,"
        " kfm.scans, kfm.qa_findings, kfm.purge_marks"
    )
    op.execute("ALTER TABLE kfm.verdicts DROP COLUMN rules, DROP COLUMN report")
    op.execute("DROP INDEX kfm.keys_by_window, kfm.verdicts_by_time")
