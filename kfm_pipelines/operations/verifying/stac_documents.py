"""Whether a document is valid STAC, by what ships with us; no network is asked."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfm_pipelines.catalogs.profile import check
from kfm_pipelines.errors import IntegrityBroken
from kfm_pipelines.operations.verifying.checking import Check

_KINDS = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}


def is_valid(path: str, document: Mapping[str, Any]) -> Iterator[Check]:
    kind = _KINDS.get(str(document.get("type")))
    try:
        if kind is None:
            raise IntegrityBroken("it is no Item, Collection or Catalog")
        check(kind, document)  # type: ignore[arg-type]  # the three there are
    except IntegrityBroken as error:
        yield Check("valid STAC", path, ok=False, found=str(error))
    else:
        yield Check("valid STAC", path, ok=True)
