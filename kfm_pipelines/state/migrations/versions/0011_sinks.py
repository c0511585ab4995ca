"""What follows a publication: the outbox of the sinks, the log of the tables, and the catalog that names them.

The schema `iceberg` has the tables of pyiceberg's catalog in SQL, which other readers know as the JDBC catalog."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

SINKS = r"""
CREATE SEQUENCE kfm.outbox_changes;

CREATE TABLE kfm.outbox (
    sink     text NOT NULL,
    key      text NOT NULL,
    dataset  text NOT NULL,
    change   bigint NOT NULL DEFAULT nextval('kfm.outbox_changes'),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    due      timestamptz NOT NULL DEFAULT clock_timestamp() + interval '15 seconds',
    attempts integer NOT NULL DEFAULT 0,
    problem  text,
    PRIMARY KEY (sink, key)
);
COMMENT ON TABLE kfm.outbox IS 'keys whose publication a sink does not show yet; written with the publication';
COMMENT ON COLUMN kfm.outbox.change IS 'rises with each publication of the key: a sink removes only what it has seen';
COMMENT ON COLUMN kfm.outbox.due IS 'the run that published it comes first';
COMMENT ON COLUMN kfm.outbox.at IS 'since when the sink has been behind';
CREATE INDEX outbox_by_dataset ON kfm.outbox (sink, dataset, due);

CREATE TABLE kfm.table_commits (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset  text NOT NULL,
    branch   text NOT NULL UNIQUE,
    kind     text NOT NULL CHECK (kind IN ('publication', 'compaction')),
    base     bigint NOT NULL,
    begun    timestamptz NOT NULL DEFAULT clock_timestamp(),
    snapshot bigint,
    outcome  text CHECK (outcome IN ('published', 'abandoned')),
    ended    timestamptz,
    CHECK ((outcome IS NULL) = (ended IS NULL)),
    CHECK (outcome <> 'published' OR snapshot IS NOT NULL)
);
COMMENT ON TABLE kfm.table_commits IS 'write-ahead log of the tables: what a branch is for, and what became of it';
COMMENT ON COLUMN kfm.table_commits.snapshot IS 'what was audited and may become current';
CREATE INDEX table_commits_open ON kfm.table_commits (dataset) WHERE outcome IS NULL;

CREATE TABLE kfm.table_commit_keys (
    commit_id    bigint NOT NULL REFERENCES kfm.table_commits ON DELETE CASCADE,
    key          text NOT NULL,
    revision     integer,
    content_hash text,
    PRIMARY KEY (commit_id, key),
    CHECK ((revision IS NULL) = (content_hash IS NULL))
);
COMMENT ON TABLE kfm.table_commit_keys IS 'the keys of a publication; without a revision where a key leaves the table';
CREATE INDEX table_commit_keys_by_key ON kfm.table_commit_keys (key, commit_id);

CREATE SCHEMA iceberg;
CREATE TABLE iceberg.iceberg_tables (
    catalog_name               varchar(255) NOT NULL,
    table_namespace            varchar(255) NOT NULL,
    table_name                 varchar(255) NOT NULL,
    metadata_location          varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type               varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE iceberg.iceberg_namespace_properties (
    catalog_name   varchar(255) NOT NULL,
    namespace      varchar(255) NOT NULL,
    property_key   varchar(255) NOT NULL,
    property_value varchar(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);
"""


def upgrade() -> None:
    op.execute(SINKS)


def downgrade() -> None:
    op.execute("DROP SCHEMA iceberg CASCADE")
    op.execute("DROP TABLE kfm.table_commit_keys, kfm.table_commits, kfm.outbox")
    op.execute("DROP SEQUENCE kfm.outbox_changes")
