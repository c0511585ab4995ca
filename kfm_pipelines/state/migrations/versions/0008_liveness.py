"""Which process executes which run."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

PROCESSES = r"""
CREATE SEQUENCE kfm.process_numbers AS integer CYCLE;
CREATE TABLE kfm.run_processes (
    run_id        text PRIMARY KEY,
    process       integer NOT NULL,
    begun_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing_since timestamptz
);
COMMENT ON TABLE kfm.run_processes IS 'the process of each run that has begun; alive while it holds its advisory lock';
COMMENT ON COLUMN kfm.run_processes.missing_since IS 'when its lock was first found missing; null while it is held';
CREATE INDEX run_processes_begun ON kfm.run_processes (begun_at);

CREATE VIEW kfm.live_processes AS
    SELECT DISTINCT objid::bigint::integer AS process, classid = 4935246 AS worker FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid IN (4935245, 4935246)
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
COMMENT ON VIEW kfm.live_processes IS 'the holders of advisory locks of processes, and whether each is a worker';

ALTER TABLE kfm.dispatches ADD COLUMN process integer;
COMMENT ON COLUMN kfm.dispatches.process IS 'the worker that executes it itself; null when the daemon is asked to';
"""


def upgrade() -> None:
    op.execute(PROCESSES)


def downgrade() -> None:
    op.execute("ALTER TABLE kfm.dispatches DROP COLUMN process")
    op.execute("DROP VIEW kfm.live_processes")
    op.execute("DROP TABLE kfm.run_processes")
    op.execute("DROP SEQUENCE kfm.process_numbers")
