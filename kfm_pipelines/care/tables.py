"""Exemptions from masking, which are signed and never deleted, and policy versions as they were first used (SQL)."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date, datetime

from kfm_pipelines.care.signatures import Signature
from kfm_pipelines.errors import PolicyRefused, ReviewRefused
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.database import Connection, Database, insert_rows, jsonb


@dataclass(frozen=True, slots=True)
class Exemption:
    id: str
    dataset: str
    policy: str
    key_prefix: str
    until: date
    signed: Signature
    at: datetime | None = None
    ended_at: datetime | None = None

    def covers(self, key: str) -> bool:
        return self.ended_at is None and key.startswith(self.key_prefix)


def record_exemption(database: Database, exemption: Exemption) -> None:
    signed = exemption.signed
    with database.transaction() as connection:
        granted = {name: getattr(exemption, name) for name in ("id", "dataset", "policy", "key_prefix")}
        granted["until"] = exemption.until.isoformat()
        insert_rows(connection, "exemptions", [granted | asdict(signed)])
        _audit(connection, Action.EXEMPTION_GIVEN, exemption, signed)


def record_exemption_end(database: Database, exemption: Exemption, signed: Signature) -> None:
    with database.transaction() as connection:
        statement = """
            INSERT INTO kfm.exemption_ends (exemption, statement, authority, holder, key_id, signature)
            VALUES (%(id)s, %(statement)s, %(authority)s, %(holder)s, %(key_id)s, %(signature)s)
            ON CONFLICT DO NOTHING
        """
        signature = {**asdict(signed), "statement": jsonb(dict(signed.statement))}
        ended = connection.execute(statement, {"id": exemption.id, **signature}).rowcount
        if not ended:
            raise ReviewRefused(f"exemption {exemption.id} has already ended")
        # What was published under it must be masked, so its keys are due again.
        statement = """
            UPDATE kfm.keys SET due_at = least(due_at, clock_timestamp())
            WHERE dataset = %(dataset)s AND starts_with(key, %(prefix)s)
        """
        connection.execute(statement, {"dataset": exemption.dataset, "prefix": exemption.key_prefix})
        _audit(connection, Action.EXEMPTION_ENDED, exemption, signed)


def exemptions_of(database: Database, dataset: str | None = None) -> list[Exemption]:
    """Returns all exemptions ever granted, newest first."""
    query = """
        SELECT e.*, x.at AS ended_at FROM kfm.exemptions e LEFT JOIN kfm.exemption_ends x ON x.exemption = e.id
        WHERE e.dataset = coalesce(%(dataset)s, e.dataset) ORDER BY e.at DESC, e.id
    """
    rows = database.fetch(query, {"dataset": dataset})
    columns = ("id", "dataset", "policy", "key_prefix", "until", "at", "ended_at")
    return [Exemption(**{name: row[name] for name in columns}, signed=Signature.from_row(row)) for row in rows]


def read_exemption(database: Database, identifier: str) -> Exemption:
    for exemption in exemptions_of(database):
        if exemption.id == identifier:
            return exemption
    raise ReviewRefused(f"there is no exemption {identifier[:80]!r}")


def _audit(connection: Connection, action: Action, exemption: Exemption, signed: Signature) -> None:
    detail = {"exemption": exemption.id, "until": exemption.until.isoformat(), "keys": exemption.key_prefix}
    audit.record(connection, [AuditEntry(action, signed.holder, exemption.dataset, exemption.policy, detail=detail)])


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    policy: str
    version: int
    digest: str
    key_id: str | None
    key_check: str | None

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.version}"


def register_version(database: Database, version: PolicyVersion, dataset: str) -> None:
    """Records a new version. Raises PolicyRefused when a known one has changed, or its secret has."""
    known = known_versions(database, version)
    refuse_changed_rules(version, known)
    refuse_changed_secret(version, known)
    if all(one.name != version.name for one in known):
        _insert(database, version, dataset)


def known_versions(database: Database, version: PolicyVersion) -> list[PolicyVersion]:
    """Returns this version as it was first used, and every version with the same secret."""
    rows = database.fetch(
        "SELECT policy, version, digest, key_id, key_check FROM kfm.policy_versions"
        " WHERE (policy = %(policy)s AND version = %(version)s) OR key_id = %(key_id)s",
        {"policy": version.policy, "version": version.version, "key_id": version.key_id},
    )
    return [PolicyVersion(**row) for row in rows]


def refuse_changed_rules(version: PolicyVersion, known: Iterable[PolicyVersion]) -> None:
    if any(one.name == version.name and one.digest != version.digest for one in known):
        raise PolicyRefused(f"policy {version.name} is not what it was when it was first used; give it a new version")


def refuse_changed_secret(version: PolicyVersion, known: Iterable[PolicyVersion]) -> None:
    same_key = [one for one in known if version.key_id is not None and one.key_id == version.key_id]
    if any(one.key_check != version.key_check for one in same_key):
        raise PolicyRefused(
            f"the secret of key {version.key_id} is not the one it was; a new secret is a new key_id and policy version"
        )


def _insert(database: Database, version: PolicyVersion, dataset: str) -> None:
    with database.transaction() as connection:
        statement = """
            INSERT INTO kfm.policy_versions (policy, version, digest, key_id, key_check)
            VALUES (%(policy)s, %(version)s, %(digest)s, %(key_id)s, %(key_check)s) ON CONFLICT DO NOTHING
        """
        new = connection.execute(statement, asdict(version)).rowcount
        if new:
            detail = {"key_id": version.key_id} if version.key_id else {}
            entry = AuditEntry(Action.POLICY_USED, "kfm", dataset, version.name, digest=version.digest, detail=detail)
            audit.record(connection, [entry])
    if not new:
        register_version(database, version, dataset)
