"""Masking policies: one reviewed YAML file each in resources/policies/.

A dataset without a policy, a policy nobody reviews any more, or one that contradicts itself publishes nothing.
"""

import hashlib
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from kfm_pipelines.datasets import describe, read_yaml
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused

Method = Literal["none"]
Words = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]


class Policy(BaseModel):
    """What is done to a sensitive dataset, why, on whose authority and until when."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    policy: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
    version: Annotated[int, Field(ge=1)]
    sensitivity: Literal["open"]
    method: Method
    reason: Words
    authority: Words
    reviewed_on: date
    review_by: date

    @model_validator(mode="after")
    def _review_is_ahead(self) -> Self:
        if self.review_by <= self.reviewed_on:
            raise ValueError("review_by must be after reviewed_on")
        return self

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.version}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(rfc8785.dumps(self.model_dump(mode="json"))).hexdigest()


def load_policy(resources: Path, name: str) -> Policy:
    path = resources / "policies" / f"{name}.yaml"
    if not path.is_file():
        raise PolicyRefused(f"there is no masking policy {name!r} in resources/policies, so nothing may be published")
    try:
        policy = Policy.model_validate(read_yaml(path))
    except ValidationError as error:
        raise DeclarationInvalid(f"{path.name}: {describe(error)}") from None
    if policy.policy != name:
        raise DeclarationInvalid(f"{path.name}: policy: must be {name!r} like its file, not {policy.policy!r}")
    return policy


def refuse_if_unfit(policy: Policy, today: date) -> None:
    if today > policy.review_by:
        raise PolicyRefused(
            f"policy {policy.name} was due for review by {policy.review_by}; nothing is published under it"
        )
