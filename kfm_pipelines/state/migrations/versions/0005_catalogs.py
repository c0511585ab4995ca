"""Pages of the catalog, the ledger of publications, snapshots."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PAGES = r"""
CREATE FUNCTION kfm.page_of(key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT replace(left(label, CASE length(label) WHEN 14 THEN 10 WHEN 10 THEN 7 ELSE 4 END), '-', '/')
    FROM split_part(key, ':', 4) AS label
$$;
COMMENT ON FUNCTION kfm.page_of IS
    'the page that links a key: a day of hours, a month of days or a year of months, by the window in the key';
CREATE INDEX keys_of_page ON kfm.keys (dataset, kfm.page_of(key));

CREATE TABLE kfm.collection_pages (
    dataset  text NOT NULL,
    page     text NOT NULL,
    changed  bigint NOT NULL DEFAULT 0,
    written  bigint NOT NULL DEFAULT 0,
    items    bigint NOT NULL DEFAULT 0,
    rows     bigint NOT NULL DEFAULT 0,
    bytes    bigint NOT NULL DEFAULT 0,
    starts   timestamptz,
    ends     timestamptz,
    bbox     double precision[],
    versions text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (dataset, page)
);
COMMENT ON TABLE kfm.collection_pages IS
    'a page links the items of one stretch of time; it is written anew while written < changed';
COMMENT ON COLUMN kfm.collection_pages.items IS 'this and what follows: as the page was last written';
CREATE INDEX revisions_by_content ON kfm.revisions (content_hash);
CREATE INDEX staged_by_time ON kfm.wal (at) WHERE step = 'stage_atomic';
CREATE INDEX stale_pages ON kfm.collection_pages (dataset) WHERE changed <> written;

-- What was published before there were pages gets its pages at the next tick.
INSERT INTO kfm.collection_pages (dataset, page, changed)
SELECT dataset, kfm.page_of(key), count(*) FROM kfm.keys k
WHERE EXISTS (SELECT FROM kfm.revisions r WHERE r.key = k.key) GROUP BY 1, 2;
UPDATE kfm.collections SET changed = changed + 1;

CREATE INDEX scanned_with_errors ON kfm.scanned (key) WHERE errors > 0;
"""

LEDGER = r"""
CREATE TABLE kfm.ledger (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id           text NOT NULL,
    dataset          text NOT NULL,
    key              text NOT NULL,
    revision         integer NOT NULL,
    txn              bigint NOT NULL,
    content_hash     text NOT NULL,
    item_hash        text NOT NULL,
    manifest_hash    text,
    attestation_hash text,
    rows             bigint NOT NULL,
    bytes            bigint NOT NULL,
    UNIQUE (key, txn)
);
COMMENT ON TABLE kfm.ledger IS 'one entry for each publication, with the digests that its documents have';
COMMENT ON COLUMN kfm.ledger.manifest_hash IS 'this and the next: null for what was staged before there were any';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.ledger FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON kfm.ledger EXECUTE FUNCTION kfm.refuse_change();
"""

SNAPSHOTS = r"""
CREATE TABLE kfm.snapshots (
    dataset text NOT NULL,
    kind    text NOT NULL,
    changed bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset, kind)
);
COMMENT ON COLUMN kfm.snapshots.changed IS 'up to which change of the collection the snapshot goes';
"""


def upgrade() -> None:
    for statements in (PAGES, LEDGER, SNAPSHOTS):
        op.execute(statements)


def downgrade() -> None:
    op.execute("DROP TABLE kfm.snapshots, kfm.ledger, kfm.collection_pages")
    op.execute("DROP INDEX kfm.scanned_with_errors, kfm.keys_of_page, kfm.revisions_by_content, kfm.staged_by_time")
    op.execute("DROP FUNCTION kfm.page_of")
