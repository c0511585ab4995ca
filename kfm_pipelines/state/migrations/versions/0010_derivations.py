"""Indexes by which releases are announced to derived datasets."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INDEXES = r"""
CREATE INDEX inbox_releases ON kfm.inbox (asset_uri) WHERE shape = 'kfm-release';
CREATE INDEX ledger_by_time ON kfm.ledger (dataset, at);
"""


def upgrade() -> None:
    op.execute(INDEXES)


def downgrade() -> None:
    op.execute("DROP INDEX kfm.inbox_releases, kfm.ledger_by_time")
