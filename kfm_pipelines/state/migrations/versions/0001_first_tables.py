"""Inbox, keys with lease and fencing epoch, write-ahead log, verdicts, revisions, dispatches, dead letters."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEYS = r"""
CREATE TABLE kfm.dispatches (
    run_key      text PRIMARY KEY,
    dataset      text NOT NULL,
    keys         text[] NOT NULL CHECK (cardinality(keys) > 0),
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at    timestamptz
);
CREATE INDEX dispatches_open ON kfm.dispatches (requested_at) WHERE closed_at IS NULL;

CREATE TABLE kfm.keys (
    key          text PRIMARY KEY CHECK (key ~ '^[A-Za-z0-9_-]+(:[A-Za-z0-9_-]+){4}$'),
    dataset      text NOT NULL,
    window_start timestamptz NOT NULL,
    window_end   timestamptz NOT NULL CHECK (window_end > window_start),
    priority     smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2),
    epoch        bigint NOT NULL DEFAULT 0,
    owner        text,
    lease_until  timestamptz,
    due_at       timestamptz,
    attempts     integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    dispatch     text REFERENCES kfm.dispatches,
    dispatches   integer NOT NULL DEFAULT 0,
    CONSTRAINT a_lease_has_an_owner CHECK ((owner IS NULL) = (lease_until IS NULL))
);
CREATE INDEX keys_due ON kfm.keys (dataset, priority DESC, window_start) WHERE due_at IS NOT NULL;
CREATE INDEX keys_held ON kfm.keys (owner) WHERE owner IS NOT NULL;
CREATE INDEX keys_dispatched ON kfm.keys (dispatch) WHERE dispatch IS NOT NULL;

CREATE FUNCTION kfm.later(attempts integer) RETURNS timestamptz LANGUAGE sql AS $$
    SELECT clock_timestamp() + make_interval(secs => least(300, 2 ^ least(attempts, 9)))
$$;
COMMENT ON FUNCTION kfm.later IS 'when to try again after a run died: twice as long each time, five minutes at most';

CREATE FUNCTION kfm.guard_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch < OLD.epoch THEN
        RAISE EXCEPTION 'the epoch of % may not go back from % to %', OLD.key, OLD.epoch, NEW.epoch
            USING ERRCODE = 'KF002';
    END IF;
    IF NEW.owner IS NOT NULL AND NEW.owner IS DISTINCT FROM OLD.owner AND NEW.epoch = OLD.epoch THEN
        RAISE EXCEPTION 'a new owner of % needs a new epoch', OLD.key USING ERRCODE = 'KF002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_claim BEFORE UPDATE ON kfm.keys FOR EACH ROW EXECUTE FUNCTION kfm.guard_claim();
"""

INBOX = r"""
CREATE TABLE kfm.inbox (
    identity    text PRIMARY KEY CHECK (identity ~ '^[0-9a-f]{64}$'),
    key         text NOT NULL REFERENCES kfm.keys,
    dataset     text NOT NULL,
    shape       text NOT NULL,
    asset_uri   text NOT NULL,
    etag        text,
    version_id  text,
    size        bigint CHECK (size >= 0),
    sequencer   text,
    event_time  timestamptz NOT NULL,
    priority    text NOT NULL,
    queue       text NOT NULL,
    body        text NOT NULL,
    state       text NOT NULL DEFAULT 'received' CHECK (state IN ('received', 'started', 'succeeded', 'failed')),
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX inbox_of_key ON kfm.inbox (key);

CREATE TABLE kfm.inbox_moves (previous text NOT NULL, next text NOT NULL, PRIMARY KEY (previous, next));
INSERT INTO kfm.inbox_moves VALUES
    ('received', 'started'), ('failed', 'started'),
    ('started', 'succeeded'), ('started', 'failed'), ('started', 'received');

CREATE FUNCTION kfm.guard_inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> OLD.state AND NOT EXISTS (
        SELECT FROM kfm.inbox_moves WHERE previous = OLD.state AND next = NEW.state
    ) THEN
        RAISE EXCEPTION 'an event may not go from % to %', OLD.state, NEW.state USING ERRCODE = 'KF002';
    END IF;
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER guard_inbox BEFORE UPDATE ON kfm.inbox FOR EACH ROW EXECUTE FUNCTION kfm.guard_inbox();

CREATE TABLE kfm.queue_totals (
    queue      text PRIMARY KEY,
    received   bigint NOT NULL DEFAULT 0,
    recorded   bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    refused    bigint NOT NULL DEFAULT 0
);
"""

WAL = r"""
CREATE FUNCTION kfm.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'KF002';
END $$;

CREATE TABLE kfm.wal_moves (previous text NOT NULL, next text NOT NULL, PRIMARY KEY (previous, next));
INSERT INTO kfm.wal_moves VALUES
    ('', 'begin'),
    ('begin', 'compute'), ('compute', 'mask'), ('mask', 'validate'), ('validate', 'stage_atomic'),
    ('stage_atomic', 'publish'), ('publish', 'commit'),
    ('begin', 'skip'), ('compute', 'skip'),
    ('begin', 'fail'), ('compute', 'fail'), ('mask', 'fail'), ('validate', 'fail'), ('stage_atomic', 'fail'),
    ('publish', 'fail');

CREATE TABLE kfm.wal (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key     text NOT NULL REFERENCES kfm.keys,
    txn     bigint NOT NULL CHECK (txn > 0),
    epoch   bigint NOT NULL,
    step    text NOT NULL,
    outcome text GENERATED ALWAYS AS (
        CASE step WHEN 'commit' THEN 'APPLIED' WHEN 'skip' THEN 'SKIPPED' WHEN 'fail' THEN 'FAILED' END) STORED,
    run_id  text NOT NULL,
    detail  jsonb NOT NULL DEFAULT '{}',
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (key, txn, step)
);
CREATE INDEX wal_of_key ON kfm.wal (key, id);
CREATE INDEX wal_of_run ON kfm.wal (run_id, at);
COMMENT ON COLUMN kfm.wal.txn IS 'the epoch that began the transaction';
COMMENT ON COLUMN kfm.wal.epoch IS 'the epoch of the writer: later than txn when a successor ends it';

CREATE FUNCTION kfm.guard_wal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
    last kfm.wal%ROWTYPE;
    before text := '';
BEGIN
    SELECT epoch INTO held FROM kfm.keys WHERE key = NEW.key FOR UPDATE;
    IF held IS DISTINCT FROM NEW.epoch THEN
        RAISE EXCEPTION '% is held at epoch %, not %', NEW.key, held, NEW.epoch USING ERRCODE = 'KF001';
    END IF;
    SELECT * INTO last FROM kfm.wal WHERE key = NEW.key ORDER BY id DESC LIMIT 1;
    IF NEW.step = 'begin' THEN
        IF last.id IS NOT NULL AND last.outcome IS NULL THEN
            RAISE EXCEPTION '% has a transaction open at %', NEW.key, last.step USING ERRCODE = 'KF002';
        END IF;
    ELSIF last.txn = NEW.txn THEN
        before := last.step;
    END IF;
    IF NOT EXISTS (SELECT FROM kfm.wal_moves m WHERE m.previous = before AND m.next = NEW.step) THEN
        RAISE EXCEPTION '% may not go from % to %', NEW.key, coalesce(nullif(before, ''), 'nothing'), NEW.step
            USING ERRCODE = 'KF002';
    END IF;
    IF before = 'publish' AND NEW.step = 'fail' AND NEW.txn = NEW.epoch THEN
        RAISE EXCEPTION '% has a publish intent, which only a successor may give up', NEW.key USING ERRCODE = 'KF002';
    END IF;
    IF NEW.txn > NEW.epoch OR (NEW.txn < NEW.epoch AND NEW.step NOT IN ('commit', 'fail')) THEN
        RAISE EXCEPTION 'epoch % may not write % of transaction %', NEW.epoch, NEW.step, NEW.txn
            USING ERRCODE = 'KF002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_wal BEFORE INSERT ON kfm.wal FOR EACH ROW EXECUTE FUNCTION kfm.guard_wal();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.wal FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON kfm.wal EXECUTE FUNCTION kfm.refuse_change();

CREATE TABLE kfm.verdicts (
    key          text NOT NULL REFERENCES kfm.keys,
    txn          bigint NOT NULL,
    gate         text NOT NULL,
    content_hash text NOT NULL,
    passed       boolean NOT NULL,
    findings     jsonb NOT NULL,
    run_id       text NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key, txn, gate)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.verdicts
    FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
"""

RESULTS = r"""
CREATE TABLE kfm.revisions (
    key          text NOT NULL REFERENCES kfm.keys,
    revision     integer NOT NULL CHECK (revision > 0),
    txn          bigint NOT NULL,
    inputs_hash  text NOT NULL,
    fingerprint  text NOT NULL,
    content_hash text NOT NULL,
    item_hash    text NOT NULL,
    rows         bigint NOT NULL,
    bytes        bigint NOT NULL,
    bbox         double precision[],
    run_id       text NOT NULL,
    applied_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key, revision)
);
COMMENT ON COLUMN kfm.revisions.inputs_hash IS 'what went in: content of every object, and the configuration';
COMMENT ON COLUMN kfm.revisions.fingerprint IS
    'what the events promised: location and ETag of every object, and the configuration';

CREATE FUNCTION kfm.guard_revision() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last kfm.revisions%ROWTYPE;
BEGIN
    SELECT * INTO last FROM kfm.revisions WHERE key = NEW.key ORDER BY revision DESC LIMIT 1;
    IF NEW.revision <> coalesce(last.revision, 0) + 1 THEN
        RAISE EXCEPTION 'revision % of % does not follow %', NEW.revision, NEW.key, coalesce(last.revision, 0)
            USING ERRCODE = 'KF002';
    END IF;
    IF NEW.inputs_hash = last.inputs_hash THEN
        RAISE EXCEPTION '% was already applied with these inputs', NEW.key USING ERRCODE = 'KF002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_revision BEFORE INSERT ON kfm.revisions FOR EACH ROW EXECUTE FUNCTION kfm.guard_revision();

CREATE TABLE kfm.collections (
    dataset text PRIMARY KEY,
    changed bigint NOT NULL DEFAULT 0,
    written bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE kfm.collections IS 'a collection is written anew while written < changed';

CREATE TABLE kfm.dead_letters (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source        text NOT NULL UNIQUE,
    dataset       text,
    key           text,
    failure_stage text NOT NULL,
    triage        text NOT NULL,
    error         text NOT NULL,
    reason        text NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    run_id        text,
    queue         text,
    body          text,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at     timestamptz
);
COMMENT ON COLUMN kfm.dead_letters.source IS 'identity of the refused message, or key and transaction that failed';
CREATE INDEX dead_letters_of_key ON kfm.dead_letters (key) WHERE closed_at IS NULL;
"""


def upgrade() -> None:
    for statements in (KEYS, INBOX, WAL, RESULTS):
        op.execute(statements)


def downgrade() -> None:
    # One by one: Alembic's own table lives in the same schema and is written after this.
    op.execute(
        "DROP TABLE kfm.dead_letters, kfm.collections, kfm.revisions, kfm.verdicts, kfm.wal, kfm.wal_moves,"
        " kfm.queue_totals, kfm.inbox, kfm.inbox_moves, kfm.keys, kfm.dispatches"
    )
    op.execute(
        "DROP FUNCTION kfm.guard_revision, kfm.guard_wal, kfm.refuse_change, kfm.guard_inbox, kfm.guard_claim,"
        " kfm.later"
    )
