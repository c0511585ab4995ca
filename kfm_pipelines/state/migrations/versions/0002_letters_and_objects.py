"""Deletions, message groups and the archive in the inbox; what is known of each object; dead letters that can be
triaged, redriven and quarantined."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

EVENTS = r"""
ALTER TABLE kfm.inbox
    ADD COLUMN change         text NOT NULL DEFAULT 'created' CHECK (change IN ('created', 'deleted', 'purged')),
    ADD COLUMN message_group  text,
    ADD COLUMN group_sequence numeric,
    ADD COLUMN archived_at    timestamptz;
COMMENT ON COLUMN kfm.inbox.group_sequence IS 'place in its message group, as SQS FIFO numbered it';


CREATE TABLE kfm.ingest_state (
    dataset      text NOT NULL,
    asset_uri    text NOT NULL,
    key          text NOT NULL REFERENCES kfm.keys,
    etag         text,
    version_id   text,
    sequencer    text,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset, asset_uri)
);
COMMENT ON TABLE kfm.ingest_state IS 'the content of each object that is in what is published now';
CREATE INDEX ingest_state_of_key ON kfm.ingest_state (key);

CREATE TABLE kfm.fetch_totals (
    dataset text PRIMARY KEY,
    hits    bigint NOT NULL DEFAULT 0,
    misses  bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE kfm.fetch_totals IS 'objects that had not changed and so were not fetched, and those that were';

ALTER TABLE kfm.queue_totals ADD COLUMN violations bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN kfm.queue_totals.violations IS 'messages that kept their uniqueness in attributes';
ALTER TABLE kfm.dispatches ADD COLUMN priority smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2);
CREATE INDEX dispatches_recent ON kfm.dispatches (requested_at);
"""

LETTERS = r"""
ALTER TABLE kfm.dead_letters
    ADD COLUMN state          text NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'redriving', 'closed', 'quarantined')),
    ADD COLUMN attributes     jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN attribute_types jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN message_group  text,
    ADD COLUMN group_sequence numeric,
    ADD COLUMN trace          text NOT NULL DEFAULT '',
    ADD COLUMN lineage        jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN cost           jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN filed_at       timestamptz,
    ADD COLUMN forwarded_at   timestamptz;
UPDATE kfm.dead_letters SET state = 'closed' WHERE closed_at IS NOT NULL;
ALTER TABLE kfm.dead_letters
    ADD CONSTRAINT closed_has_a_time CHECK ((state = 'closed') = (closed_at IS NOT NULL));
CREATE INDEX dead_letters_live ON kfm.dead_letters (id) WHERE state <> 'closed';
CREATE INDEX dead_letters_unfiled ON kfm.dead_letters (id) WHERE filed_at IS NULL;
CREATE INDEX dead_letters_unforwarded ON kfm.dead_letters (id) WHERE forwarded_at IS NULL;

CREATE TABLE kfm.letter_moves (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    letter bigint NOT NULL REFERENCES kfm.dead_letters,
    what   text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}',
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX letter_moves_of_letter ON kfm.letter_moves (letter, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.letter_moves
    FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
COMMENT ON TABLE kfm.letter_moves IS 'everything that happened to a dead letter';

CREATE TABLE kfm.redrives (
    id         text PRIMARY KEY,
    filter     jsonb NOT NULL,
    canary     integer NOT NULL CHECK (canary >= 0),
    rate       double precision NOT NULL CHECK (rate > 0),
    state      text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'done')),
    note       text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz
);
CREATE TABLE kfm.redrive_items (
    redrive    text NOT NULL REFERENCES kfm.redrives,
    place      integer NOT NULL,
    letter     bigint NOT NULL REFERENCES kfm.dead_letters,
    token      text NOT NULL UNIQUE,
    state      text NOT NULL DEFAULT 'planned'
        CHECK (state IN ('planned', 'sending', 'sent', 'arrived', 'succeeded', 'failed', 'dropped')),
    outcome    text NOT NULL DEFAULT '',
    keys       text[] NOT NULL DEFAULT '{}',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (redrive, letter),
    UNIQUE (redrive, place)
);
CREATE UNIQUE INDEX one_live_redrive_of_a_letter ON kfm.redrive_items (letter)
    WHERE state IN ('planned', 'sending', 'sent', 'arrived');
COMMENT ON COLUMN kfm.redrive_items.token IS 'travels with the message, so that its arrival is known';
COMMENT ON COLUMN kfm.redrive_items.keys IS 'the keys whose work decides about success';
"""

# When to try again is the retry policy's to say, and it is not in SQL.
DROP_LATER = "DROP FUNCTION kfm.later"
CREATE_LATER = """
CREATE FUNCTION kfm.later(attempts integer) RETURNS timestamptz LANGUAGE sql AS $$
    SELECT clock_timestamp() + make_interval(secs => least(300, 2 ^ least(attempts, 9)))
$$
"""


def upgrade() -> None:
    for statements in (EVENTS, LETTERS, DROP_LATER):
        op.execute(statements)


def downgrade() -> None:
    op.execute(CREATE_LATER)
    op.execute("DROP TABLE kfm.redrive_items, kfm.redrives, kfm.letter_moves, kfm.fetch_totals, kfm.ingest_state")
    op.execute("DROP INDEX kfm.dead_letters_live, kfm.dead_letters_unfiled, kfm.dead_letters_unforwarded")
    op.execute("DROP INDEX kfm.dispatches_recent")
    columns = (
        "state", "attributes", "attribute_types", "message_group", "group_sequence", "trace", "lineage", "cost",
        "changed_at", "filed_at", "forwarded_at",
    )  # fmt: skip
    dropped = ", ".join(f"DROP COLUMN {column}" for column in columns)
    op.execute(f"ALTER TABLE kfm.dead_letters DROP CONSTRAINT closed_has_a_time, {dropped}")
    op.execute("ALTER TABLE kfm.dispatches DROP COLUMN priority")
    op.execute("ALTER TABLE kfm.queue_totals DROP COLUMN violations")
    op.execute(
        "ALTER TABLE kfm.inbox DROP COLUMN change, DROP COLUMN message_group, DROP COLUMN group_sequence,"
        " DROP COLUMN archived_at"
    )
