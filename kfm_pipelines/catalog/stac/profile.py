"""Whether a STAC document is valid: by the official core schema, which comes with pystac, and by our own profile, which
comes with us. No network is asked, and the published schemas of the extensions are not needed: the profile says what
form the fields have that we use of them.

A compiled validator says whether a document is valid; the one that can explain is asked only when it is not.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.settings import shipped_path

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import ValidationError

Kind = Literal["item", "collection", "catalog"]

PROFILE_FILE = "kfm-stac-profile-v1.schema.json"
PROFILE = f"urn:kfm:contracts:{PROFILE_FILE}"


def check_document(kind: Kind, document: Mapping[str, Any], *, profiled: bool = True) -> None:
    """Refuse a document that is not valid, naming the place. Every Item and Collection has to keep to the profile, but
    for those that were published before there was one."""
    for schema in (kind, PROFILE) if profiled and kind != "catalog" else (kind,):
        if not _fast_validator(schema).is_valid(document):
            error = _first_error(schema, document)
            where = "/".join(str(part) for part in error.absolute_path) or kind
            raise IntegrityBroken(
                f"the STAC {kind} {document.get('id')} is not valid at {where}: {error.message[:200]}"
            )


def profile_bytes() -> bytes:
    """The profile, as it is published beside the catalog."""
    return (shipped_path("resources") / "contracts" / PROFILE_FILE).read_bytes()


def _first_error(schema: str, document: Mapping[str, Any]) -> "ValidationError":
    from jsonschema.exceptions import best_match

    error: ValidationError | None = best_match(_explaining_validator(schema).iter_errors(document))
    if error is None:
        raise IntegrityBroken(f"{document.get('id')} is refused by one validator of {schema} and not by the other")
    return error


@cache
def _fast_validator(schema: str) -> "jsonschema_rs.Draft7Validator":
    import jsonschema_rs

    registry = jsonschema_rs.Registry(list(_schemas().items()), draft=jsonschema_rs.Draft7)
    return jsonschema_rs.Draft7Validator(_schema(schema), registry=registry)


@cache
def _explaining_validator(schema: str) -> "Draft7Validator":
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource

    registry: Registry[Any] = Registry().with_resources(
        [(uri, Resource.from_contents(contents)) for uri, contents in _schemas().items()]
    )
    return Draft7Validator(_schema(schema), registry=registry)


def _schema(schema: str) -> Any:
    if schema == PROFILE:
        return json.loads(profile_bytes())
    [found] = [contents for uri, contents in _schemas().items() if uri.endswith(f"/{schema}.json")]
    return found


def _schemas() -> Mapping[str, Any]:
    from pystac.validation.local_validator import get_local_schema_cache

    return get_local_schema_cache()
