"""Objects that several keys have rows of."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SHARED = r"""
ALTER TABLE kfm.ingest_state DROP CONSTRAINT ingest_state_pkey, ADD PRIMARY KEY (dataset, asset_uri, key);
COMMENT ON TABLE kfm.ingest_state IS
    'the content of each object that is in what is published now, for each key that has rows of it';
COMMENT ON FUNCTION kfm.page_of IS
    'the page that links a key: a day of hours, a month of days or a year of weeks or months, by the window in the key';
"""

UNSHARED = r"""
DELETE FROM kfm.ingest_state s USING kfm.ingest_state o
WHERE o.dataset = s.dataset AND o.asset_uri = s.asset_uri AND (o.processed_at, o.key) > (s.processed_at, s.key);
ALTER TABLE kfm.ingest_state DROP CONSTRAINT ingest_state_pkey, ADD PRIMARY KEY (dataset, asset_uri);
COMMENT ON TABLE kfm.ingest_state IS 'the content of each object that is in what is published now';
COMMENT ON FUNCTION kfm.page_of IS
    'the page that links a key: a day of hours, a month of days or a year of months, by the window in the key';
"""


def upgrade() -> None:
    op.execute(SHARED)


def downgrade() -> None:
    op.execute(UNSHARED)
