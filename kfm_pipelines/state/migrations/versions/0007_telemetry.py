"""Traces of events, and what stages cost."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TRACES = r"""
ALTER TABLE kfm.inbox
    ADD COLUMN trace   text CHECK (trace ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
    ADD COLUMN sent_at timestamptz,
    ADD COLUMN settled_at timestamptz;
COMMENT ON COLUMN kfm.inbox.trace IS 'the span that recorded it, as a W3C traceparent; null when nobody traced';
COMMENT ON COLUMN kfm.inbox.sent_at IS 'when its first message was sent, by the queue''s clock; null when unknown';
COMMENT ON COLUMN kfm.inbox.settled_at IS 'when its key was published with it, or found unchanged by it';
CREATE INDEX inbox_settled ON kfm.inbox (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX wal_ended ON kfm.wal (at) WHERE outcome IS NOT NULL;
CREATE INDEX revisions_applied ON kfm.revisions (applied_at);
CREATE INDEX ledger_of_dataset ON kfm.ledger (dataset, id);
"""

ENERGY = r"""
CREATE TABLE kfm.energy (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id           text NOT NULL,
    dataset          text,
    key              text REFERENCES kfm.keys,
    epoch            bigint,
    stage            text NOT NULL,
    replay           text,
    method           text NOT NULL CHECK (method IN ('measured', 'estimated', 'unknown')),
    wall_seconds     double precision NOT NULL CHECK (wall_seconds >= 0),
    cpu_seconds      double precision CHECK (cpu_seconds >= 0),
    gigabyte_seconds double precision CHECK (gigabyte_seconds >= 0),
    bytes_read       bigint CHECK (bytes_read >= 0),
    bytes_written    bigint CHECK (bytes_written >= 0),
    network_bytes    bigint CHECK (network_bytes >= 0),
    watt_seconds     double precision CHECK (watt_seconds > 0),
    carbon_grams     double precision CHECK (carbon_grams > 0),
    cost_usd         double precision CHECK (cost_usd > 0),
    coefficients     text NOT NULL REFERENCES kfm.frozen,
    CONSTRAINT unknown_is_not_nothing CHECK ((method = 'unknown') = (watt_seconds IS NULL)),
    CONSTRAINT an_epoch_has_a_key CHECK (epoch IS NULL OR key IS NOT NULL),
    CONSTRAINT a_key_has_a_dataset CHECK (key IS NULL OR dataset IS NOT NULL)
);
COMMENT ON TABLE kfm.energy IS
    'what each stage of each attempt cost, failed ones too; entries are added and never changed; without an epoch it '
    'was tried without a claim, without a key it is what a run cost beside its keys, and without a dataset what taking '
    'messages from the queues cost';
COMMENT ON COLUMN kfm.energy.method IS
    'measured by the counters of the whole machine, estimated from what was used, or unknown; sums are never made '
    'across them';
COMMENT ON COLUMN kfm.energy.network_bytes IS 'to S3 and from there; in bytes_read and bytes_written too';
COMMENT ON COLUMN kfm.energy.coefficients IS 'what it was estimated with';
CREATE INDEX energy_of_run ON kfm.energy (run_id);
CREATE INDEX energy_of_key ON kfm.energy (key) WHERE key IS NOT NULL;
CREATE INDEX energy_of_replay ON kfm.energy (replay) WHERE replay IS NOT NULL;
CREATE INDEX energy_of_time ON kfm.energy (dataset, at);
CREATE TRIGGER energy_is_kept BEFORE UPDATE ON kfm.energy FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change();
"""

# What a replay costs is what its entries in kfm.energy come to.
REPLAYS = "ALTER TABLE kfm.replay_keys DROP COLUMN cpu_seconds"


def upgrade() -> None:
    for part in (TRACES, ENERGY, REPLAYS):
        op.execute(part)


def downgrade() -> None:
    op.execute("ALTER TABLE kfm.replay_keys ADD COLUMN cpu_seconds double precision NOT NULL DEFAULT 0")
    op.execute(
        """
        UPDATE kfm.replay_keys k SET cpu_seconds = spent.seconds
        FROM (SELECT replay, key, sum(cpu_seconds) AS seconds FROM kfm.energy GROUP BY replay, key) spent
        WHERE spent.replay = k.replay AND spent.key = k.key AND spent.seconds IS NOT NULL
        """
    )
    op.execute("DROP TABLE kfm.energy")
    op.execute("DROP INDEX kfm.wal_ended, kfm.revisions_applied, kfm.ledger_of_dataset")
    op.execute("ALTER TABLE kfm.inbox DROP COLUMN trace, DROP COLUMN sent_at, DROP COLUMN settled_at")
