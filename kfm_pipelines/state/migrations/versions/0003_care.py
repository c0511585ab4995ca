"""Masking that can be answered for: policy versions as used, exemptions, reviews, and an audit of all of it."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CARE = r"""
ALTER TABLE kfm.keys ADD COLUMN awaiting text CHECK (awaiting ~ '^[0-9a-f]{64}$');
COMMENT ON COLUMN kfm.keys.awaiting IS 'digest of the staged release that somebody with authority has to see';
CREATE INDEX keys_awaiting ON kfm.keys (key) WHERE awaiting IS NOT NULL;

CREATE TABLE kfm.policy_versions (
    policy        text NOT NULL,
    version       integer NOT NULL CHECK (version > 0),
    digest        text NOT NULL,
    key_id        text,
    key_check     text,
    first_used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (policy, version),
    CONSTRAINT a_key_has_a_check CHECK ((key_id IS NULL) = (key_check IS NULL))
);
COMMENT ON COLUMN kfm.policy_versions.key_check IS 'tells whether a secret is the same one, and nothing else about it';

CREATE TABLE kfm.exemptions (
    id         text PRIMARY KEY,
    dataset    text NOT NULL,
    policy     text NOT NULL,
    key_prefix text NOT NULL,
    until      date NOT NULL,
    statement  jsonb NOT NULL,
    authority  text NOT NULL,
    holder     text NOT NULL,
    key_id     text NOT NULL,
    signature  text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX exemptions_of_dataset ON kfm.exemptions (dataset);

CREATE TABLE kfm.exemption_ends (
    exemption text PRIMARY KEY REFERENCES kfm.exemptions,
    statement jsonb NOT NULL,
    authority text NOT NULL,
    holder    text NOT NULL,
    key_id    text NOT NULL,
    signature text NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE kfm.review_decisions (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key            text NOT NULL REFERENCES kfm.keys,
    release_digest text NOT NULL CHECK (release_digest ~ '^[0-9a-f]{64}$'),
    decision       text NOT NULL CHECK (decision IN ('approved', 'rejected')),
    statement      jsonb NOT NULL,
    authority      text NOT NULL,
    holder         text NOT NULL,
    key_id         text NOT NULL,
    signature      text NOT NULL,
    at             timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX review_decisions_of_release ON kfm.review_decisions (key, release_digest, id);

CREATE TABLE kfm.audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    action  text NOT NULL CHECK (action IN ('policy-used', 'masked', 'left-open', 'exempted', 'exemption-given',
                'exemption-ended', 'review-asked', 'review-approved', 'review-rejected', 'restricted-read')),
    actor   text NOT NULL,
    dataset text NOT NULL,
    key     text,
    txn     bigint,
    policy  text NOT NULL,
    digest  text,
    detail  jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE kfm.audit IS 'everything that was done to, decided about or seen of sensitive data; never its values';
CREATE INDEX audit_of_key ON kfm.audit (key, id);
"""

TABLES = ("policy_versions", "exemptions", "exemption_ends", "review_decisions", "audit")


def upgrade() -> None:
    op.execute(CARE)
    for table in TABLES:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON kfm.{table}"
            " FOR EACH ROW EXECUTE FUNCTION kfm.refuse_change()"
        )
        op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON kfm.{table} EXECUTE FUNCTION kfm.refuse_change()")


def downgrade() -> None:
    op.execute("DROP TABLE kfm.audit, kfm.review_decisions, kfm.exemption_ends, kfm.exemptions, kfm.policy_versions")
    op.execute("ALTER TABLE kfm.keys DROP COLUMN awaiting")
