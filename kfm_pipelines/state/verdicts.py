"""Verdicts of the gates, kept per key, transaction and content, so that `publish` can ask for itself."""

from collections.abc import Iterable, Mapping
from typing import Any

from kfm_pipelines.errors import GateRefused
from kfm_pipelines.state.claims import Claim
from kfm_pipelines.state.database import Database


def record_verdict(
    database: Database, claim: Claim, gate: str, content_hash: str, *, passed: bool, findings: list[Mapping[str, Any]]
) -> None:
    from psycopg.types.json import Jsonb

    database.execute(
        """
        INSERT INTO kfm.verdicts (key, txn, gate, content_hash, passed, findings, run_id)
        VALUES (%(key)s, %(txn)s, %(gate)s, %(content_hash)s, %(passed)s, %(findings)s, %(run_id)s)
        """,
        {
            "key": claim.key,
            "txn": claim.epoch,
            "gate": gate,
            "content_hash": content_hash,
            "passed": passed,
            "findings": Jsonb(findings),
            "run_id": claim.owner,
        },
    )


def require_green(
    database: Database,
    key: str,
    txn: int,
    gates: Iterable[str],
    content_hash: str,
    refusal: type[GateRefused] = GateRefused,
) -> None:
    """Refuse unless every gate passed exactly these bytes in exactly this transaction. No verdict is red."""
    rows = database.fetch(
        "SELECT gate, content_hash, passed FROM kfm.verdicts WHERE key = %(key)s AND txn = %(txn)s",
        {"key": key, "txn": txn},
    )
    by_gate = {row["gate"]: row for row in rows}
    for gate in gates:
        verdict = by_gate.get(gate)
        if verdict is None:
            raise refusal(f"{key}: the {gate} gate has given no verdict in this transaction")
        if verdict["content_hash"] != content_hash:
            raise refusal(f"{key}: the {gate} gate judged other bytes than the ones staged")
        if not verdict["passed"]:
            raise refusal(f"{key}: the {gate} gate is red")
