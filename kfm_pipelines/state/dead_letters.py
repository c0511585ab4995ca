"""Dead letters: one row for each refused message and each key that failed for good, with the reason in one sentence."""

from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import KfmError
from kfm_pipelines.state.claims import Claim

if TYPE_CHECKING:
    from psycopg import Connection

REASON_LIMIT = 1000


def record_key(connection: "Connection[dict[str, Any]]", claim: Claim, stage: str, error: KfmError) -> None:
    connection.execute(
        """
        INSERT INTO kfm.dead_letters (source, dataset, key, failure_stage, triage, error, reason, attempts, run_id)
        SELECT %(source)s, dataset, key, %(stage)s, %(triage)s, %(error)s, %(reason)s, %(attempts)s, %(run_id)s
        FROM kfm.keys WHERE key = %(key)s
        """,
        {
            "source": f"{claim.key}#{claim.epoch}",
            "key": claim.key,
            "stage": stage,
            "triage": error.triage,
            "error": type(error).__name__,
            "reason": str(error)[:REASON_LIMIT],
            "attempts": claim.attempts,
            "run_id": claim.owner,
        },
    )


def record_message(
    connection: "Connection[dict[str, Any]]", identity: str, queue: str, body: str, error: KfmError
) -> bool:
    """Keep a refused message; False when the very same message was refused before."""
    cursor = connection.execute(
        """
        INSERT INTO kfm.dead_letters (source, failure_stage, triage, error, reason, queue, body)
        VALUES (%(identity)s, 'receive', %(triage)s, %(error)s, %(reason)s, %(queue)s, %(body)s)
        ON CONFLICT (source) DO NOTHING
        """,
        {
            "identity": identity,
            "triage": error.triage,
            "error": type(error).__name__,
            "reason": str(error)[:REASON_LIMIT],
            "queue": queue,
            "body": body,
        },
    )
    return cursor.rowcount == 1


def close_key(connection: "Connection[dict[str, Any]]", key: str) -> None:
    """The key went through after all: its open letters are history."""
    connection.execute(
        """
        UPDATE kfm.dead_letters SET state = 'closed', closed_at = clock_timestamp()
        WHERE key = %(key)s AND closed_at IS NULL
        """,
        {"key": key},
    )
