"""How far streams have come, what is late, which configuration made what, and replays."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

EVENTS = r"""
ALTER TABLE kfm.inbox
    ADD COLUMN partition text NOT NULL DEFAULT '',
    ADD COLUMN data_time timestamptz,
    ADD COLUMN made_at   timestamptz,
    ADD COLUMN ready_at  timestamptz;
COMMENT ON COLUMN kfm.inbox.data_time IS 'the time it is about; null for what came before this was kept';
COMMENT ON COLUMN kfm.inbox.made_at IS
    'when it was first told; event_time is when it was last told; null for what came before this was kept: never late';
COMMENT ON COLUMN kfm.inbox.ready_at IS
    'when it wants its key worked on: null is at once, infinity not before somebody releases it or asks for its key';
CREATE INDEX inbox_made ON kfm.inbox (dataset, made_at);
CREATE INDEX inbox_waiting ON kfm.inbox (dataset, ready_at) WHERE state = 'received' AND ready_at IS NOT NULL;

ALTER TABLE kfm.keys ADD COLUMN inputs_from text REFERENCES kfm.keys;
COMMENT ON COLUMN kfm.keys.inputs_from IS 'the key of another transform version whose events are also this key''s';
CREATE INDEX keys_taking ON kfm.keys (inputs_from) WHERE inputs_from IS NOT NULL;
"""

STREAMS = r"""
CREATE TABLE kfm.advances (
    dataset   text NOT NULL,
    partition text NOT NULL,
    at        timestamptz NOT NULL,
    reached   timestamptz NOT NULL,
    PRIMARY KEY (dataset, partition, at)
);
COMMENT ON TABLE kfm.advances IS
    'at this time, by the producers'' clocks, the stream had reached that time; reached grows with at';
CREATE INDEX advances_at ON kfm.advances (dataset, at);

CREATE TABLE kfm.watermark_steps (
    dataset   text NOT NULL,
    at        timestamptz NOT NULL,
    watermark timestamptz NOT NULL,
    PRIMARY KEY (dataset, at)
);
COMMENT ON TABLE kfm.watermark_steps IS 'follows from the advances alone; says what was late';

CREATE TABLE kfm.checkpoints (
    dataset    text NOT NULL,
    partition  text NOT NULL,
    watermark  timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (dataset, partition)
);
COMMENT ON COLUMN kfm.checkpoints.partition IS '* for the dataset as a whole';

CREATE FUNCTION kfm.guard_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.watermark < OLD.watermark THEN
        RAISE EXCEPTION 'the watermark of % may not go back from % to %', OLD.dataset, OLD.watermark, NEW.watermark
            USING ERRCODE = 'KF002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_checkpoint BEFORE UPDATE ON kfm.checkpoints
    FOR EACH ROW EXECUTE FUNCTION kfm.guard_checkpoint();

CREATE TABLE kfm.late (
    identity   text PRIMARY KEY REFERENCES kfm.inbox,
    key        text NOT NULL REFERENCES kfm.keys,
    dataset    text NOT NULL,
    rule       text NOT NULL CHECK (rule IN ('patch', 'replay', 'quarantine')),
    state      text NOT NULL CHECK (state IN ('applied', 'held', 'released')),
    is_late    boolean NOT NULL DEFAULT true,
    noticed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by text NOT NULL DEFAULT 'kfm',
    reason     text NOT NULL DEFAULT ''
);
COMMENT ON TABLE kfm.late IS 'events made after their window had closed; what is held is no input of its key yet';
COMMENT ON COLUMN kfm.late.is_late IS
    'false where somebody decided about an event that is not late by what is known now, and may be again';
CREATE INDEX late_of_key ON kfm.late (key);
CREATE INDEX late_held ON kfm.late (dataset, rule) WHERE state = 'held';

CREATE TABLE kfm.late_again (
    dataset text PRIMARY KEY,
    since   timestamptz NOT NULL,
    until   timestamptz
);
COMMENT ON TABLE kfm.late_again IS
    'an event was delivered after later ones: what was made after since, until then or ever, may have changed sides';

CREATE TABLE kfm.stream_rules (
    dataset text PRIMARY KEY,
    rule    text NOT NULL
);
COMMENT ON TABLE kfm.stream_rules IS 'what was declared when the advances and steps of a dataset were reckoned';
"""

AUDIT = """
ALTER TABLE kfm.audit DROP CONSTRAINT audit_action_check;
ALTER TABLE kfm.audit ADD CONSTRAINT audit_action_check CHECK (action IN (
    'policy-used', 'masked', 'left-open', 'exempted', 'exemption-given', 'exemption-ended', 'review-asked',
    'review-approved', 'review-rejected', 'restricted-read'{more})) NOT VALID;
"""

CONFIGURATIONS = r"""
CREATE TABLE kfm.frozen (
    digest   text PRIMARY KEY CHECK (digest ~ '^[0-9a-f]{64}$'),
    kind     text NOT NULL,
    document jsonb NOT NULL,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.frozen FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
COMMENT ON TABLE kfm.frozen IS 'declarations and environments that made something, as they were';

INSERT INTO kfm.wal_moves VALUES ('stage_atomic', 'skip');
"""

REPLAYS = r"""
CREATE TABLE kfm.replays (
    id            text PRIMARY KEY CHECK (id ~ '^[a-z0-9-]{4,40}$'),
    dataset       text NOT NULL,
    mode          text NOT NULL CHECK (mode IN ('reproduce', 'upgrade')),
    plan          jsonb NOT NULL,
    config        jsonb NOT NULL,
    config_digest text NOT NULL,
    state         text NOT NULL DEFAULT 'planned' CHECK (state IN
        ('planned', 'canary', 'running', 'paused', 'stopped', 'cancelled', 'done')),
    note          text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at      timestamptz
);
COMMENT ON COLUMN kfm.replays.plan IS 'what was asked for: times, filters, canary, rate, time box, limits, tolerance';
CREATE INDEX replays_going ON kfm.replays (created_at) WHERE state IN ('canary', 'running');

CREATE TABLE kfm.replay_keys (
    replay     text NOT NULL REFERENCES kfm.replays,
    key        text NOT NULL REFERENCES kfm.keys,
    source     text REFERENCES kfm.keys,
    place      integer NOT NULL,
    canary     boolean NOT NULL DEFAULT false,
    state      text NOT NULL DEFAULT 'waiting' CHECK (state IN
        ('waiting', 'asked', 'done', 'quarantined', 'left_out')),
    why        text NOT NULL DEFAULT '',
    batch      integer,
    attempts   integer NOT NULL DEFAULT 0,
    outcome    text,
    comparison jsonb,
    telemetry  jsonb NOT NULL DEFAULT '{}',
    cpu_seconds double precision NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (replay, key)
);
COMMENT ON COLUMN kfm.replay_keys.source IS 'the key whose release it is compared with, where that is another';
CREATE INDEX replay_keys_by_state ON kfm.replay_keys (replay, state, place);

CREATE TABLE kfm.replay_batches (
    replay   text NOT NULL REFERENCES kfm.replays,
    batch    integer NOT NULL,
    backfill text NOT NULL UNIQUE,
    keys     integer NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    PRIMARY KEY (replay, batch)
);

CREATE TABLE kfm.replay_moves (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    replay text NOT NULL REFERENCES kfm.replays,
    what   text NOT NULL,
    actor  text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}',
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX replay_moves_of_replay ON kfm.replay_moves (replay, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.replay_moves
    FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
COMMENT ON TABLE kfm.replay_moves IS 'who did what to a replay, and what it decided by itself';

CREATE INDEX wal_of_replay ON kfm.wal ((detail ->> 'replay'), key) WHERE step = 'begin' AND detail ? 'replay';
"""


def upgrade() -> None:
    for statements in (
        EVENTS,
        STREAMS,
        AUDIT.format(more=", 'late-released', 'windows-registered'"),
        CONFIGURATIONS,
        REPLAYS,
    ):
        op.execute(statements)


def downgrade() -> None:
    op.execute("DROP INDEX kfm.wal_of_replay")
    op.execute(AUDIT.format(more=""))
    op.execute("DROP TABLE kfm.replay_moves, kfm.replay_batches, kfm.replay_keys, kfm.replays")
    op.execute("DELETE FROM kfm.wal_moves WHERE previous = 'stage_atomic' AND next = 'skip'")
    op.execute("DROP TABLE kfm.frozen, kfm.stream_rules, kfm.late_again, kfm.late, kfm.checkpoints")
    op.execute("DROP TABLE kfm.watermark_steps, kfm.advances")
    op.execute("DROP FUNCTION kfm.guard_checkpoint")
    op.execute("ALTER TABLE kfm.keys DROP COLUMN inputs_from")
    op.execute("DROP INDEX kfm.inbox_waiting, kfm.inbox_made")
    op.execute(
        "ALTER TABLE kfm.inbox DROP COLUMN ready_at, DROP COLUMN made_at, DROP COLUMN data_time, DROP COLUMN partition"
    )
