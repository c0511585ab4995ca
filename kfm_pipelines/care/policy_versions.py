"""Policy versions as they were first used. A version never changes its meaning, nor a key id its secret."""

from collections.abc import Iterable
from dataclasses import dataclass

from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.state import audit
from kfm_pipelines.state.audit import Action, AuditEntry
from kfm_pipelines.state.database import Database


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
    """Record the version when it is new; refuse it when it is not what it was, or its secret is another one."""
    known = known_versions(database, version)
    refuse_changed_rules(version, known)
    refuse_changed_secret(version, known)
    if all(one.name != version.name for one in known):
        _insert(database, version, dataset)


def known_versions(database: Database, version: PolicyVersion) -> list[PolicyVersion]:
    """This version of the policy as it was first used, and whatever else goes by the same secret."""
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
        new = connection.execute(
            """
            INSERT INTO kfm.policy_versions (policy, version, digest, key_id, key_check)
            VALUES (%(policy)s, %(version)s, %(digest)s, %(key_id)s, %(key_check)s) ON CONFLICT DO NOTHING
            """,
            {
                "policy": version.policy,
                "version": version.version,
                "digest": version.digest,
                "key_id": version.key_id,
                "key_check": version.key_check,
            },
        ).rowcount
        if new:
            detail = {"key_id": version.key_id} if version.key_id else {}
            audit.record(
                connection,
                AuditEntry(Action.POLICY_USED, "kfm", dataset, version.name, digest=version.digest, detail=detail),
            )
    if not new:
        register_version(database, version, dataset)
