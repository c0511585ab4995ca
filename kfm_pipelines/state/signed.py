"""What is kept of a signed statement, in every table that has some."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Signature:
    """A statement, and who signed it on whose authority."""

    statement: Mapping[str, Any]
    authority: str
    holder: str
    key_id: str
    signature: str

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Signature":
        return cls(row["statement"], row["authority"], row["holder"], row["key_id"], row["signature"])

    def as_row(self) -> dict[str, object]:
        from psycopg.types.json import Jsonb

        return {
            "statement": Jsonb(dict(self.statement)),
            "authority": self.authority,
            "holder": self.holder,
            "key_id": self.key_id,
            "signature": self.signature,
        }
