"""What may not happen at once."""

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from kfm_pipelines.declarations.words import DeclarationModel


class PrefixLimit(DeclarationModel):
    """At most so many runs at once over keys that begin like this."""

    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_:-]*$")]
    runs: Annotated[int, Field(ge=1, le=8)]  # dagster.yaml has a limit for each of these


class Concurrency(DeclarationModel):
    """What may not happen at once; nothing is said by default, because claims already keep a key to one run."""

    serial: bool = False
    limits: list[PrefixLimit] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_prefixes_disjoint(self) -> Self:
        ordered = sorted(limit.prefix for limit in self.limits)
        for shorter, longer in pairwise(ordered):
            if longer.startswith(shorter):
                raise ValueError(f"limits: prefix {longer!r} lies within {shorter!r}; a key may be under one only")
        return self

    def limit_of(self, key: str) -> PrefixLimit | None:
        return next((limit for limit in self.limits if key.startswith(limit.prefix)), None)
