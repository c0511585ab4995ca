"""What follows a publication: the outbox of the sinks, and the log of the tables."""

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
    due      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 0,
    problem  text,
    PRIMARY KEY (sink, key)
);
COMMENT ON TABLE kfm.outbox IS 'keys whose publication a sink does not show yet; written with the publication';
COMMENT ON COLUMN kfm.outbox.change IS 'rises with each publication of the key: a sink removes only what it has seen';
COMMENT ON COLUMN kfm.outbox.at IS 'since when the sink has been behind';
CREATE INDEX outbox_by_dataset ON kfm.outbox (sink, dataset, due);

CREATE TABLE kfm.table_commits (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset  text NOT NULL,
    branch   text NOT NULL UNIQUE,
    kind     text NOT NULL CHECK (kind IN ('publication', 'compaction')),
    keys     jsonb NOT NULL,
    begun    timestamptz NOT NULL DEFAULT clock_timestamp(),
    snapshot bigint,
    outcome  text CHECK (outcome IN ('published', 'abandoned')),
    ended    timestamptz,
    CHECK ((outcome IS NULL) = (ended IS NULL))
);
COMMENT ON TABLE kfm.table_commits IS 'write-ahead log of the tables: what a branch is for, and what became of it';
COMMENT ON COLUMN kfm.table_commits.keys IS 'revision and content hash of each key; null where it leaves the table';
COMMENT ON COLUMN kfm.table_commits.snapshot IS 'what was audited and may become current';
CREATE INDEX table_commits_open ON kfm.table_commits (dataset) WHERE outcome IS NULL;
CREATE INDEX table_commits_by_snapshot ON kfm.table_commits (dataset, snapshot);
"""


def upgrade() -> None:
    op.execute(SINKS)


def downgrade() -> None:
    op.execute("DROP TABLE kfm.table_commits, kfm.outbox; DROP SEQUENCE kfm.outbox_changes")
