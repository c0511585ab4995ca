"""Pages of a collection: catalogs that link the Items of one stretch of time, so that none grows for ever.

A page depends on the names of what it links and on nothing else, so it need not be written again because of a title.
"""

from collections.abc import Sequence

from kfm_pipelines.catalog.documents import document_bytes
from kfm_pipelines.catalog.stac.profile import check_document

_YEAR, _MONTH, _DAY = 4, 7, 10
# How much of the label of a window names the page: a day of hours, a month of days, a year of months.
_LABEL_PREFIXES = {"2025-12-04T00Z": _DAY, "2025-12-04": _MONTH, "2025-12": _YEAR}
_PREFIX_LENGTHS = {len(label): named for label, named in _LABEL_PREFIXES.items()}


def page_of(key: str) -> str:
    """The page that links this key: `2025/12/04`, `2025/12` or `2025`."""
    label = key.split(":")[3]
    return label[: _PREFIX_LENGTHS[len(label)]].replace("-", "/")


def pages_above(page: str) -> list[str]:
    """From the nearest: `2025/12/04` → `2025/12`, `2025`."""
    parts = page.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def page_document(pipeline: str, page: str, below: Sequence[str], keys: Sequence[str]) -> bytes:
    """One page. It may link both pages and Items, where a dataset has had windows of more than one length."""
    up = "../" * (len(page.split("/")) + 1)
    above = pages_above(page)
    when = page.replace("/", "-")
    document = {
        "type": "Catalog",
        "stac_version": stac_version(),
        "id": f"{pipeline}-{when}",
        "title": when,
        "description": f"What is published of {pipeline} for {when}, in UTC.",
        "links": [
            {"rel": "root", "href": f"{up}../catalog.json", "type": "application/json"},
            {
                "rel": "parent",
                "href": "../catalog.json" if above else f"{up}collection.json",
                "type": "application/json",
            },
            *(child_link(f"./{one.rsplit('/', 1)[-1]}/catalog.json", one) for one in sorted(below)),
            *([dcat_link()] if keys else []),
            *({"rel": "item", "href": f"{up}items/{key}.json", "type": "application/geo+json"} for key in sorted(keys)),
        ],
    }
    check_document("catalog", document)
    return document_bytes(document)


def child_link(href: str, page: str) -> dict[str, str]:
    return {"rel": "child", "href": href, "type": "application/json", "title": page.replace("/", "-")}


def dcat_link() -> dict[str, str]:
    """Beside every document that leads to datasets or files."""
    return {"rel": "alternate", "href": "./dcat.jsonld", "type": "application/ld+json", "title": "As DCAT-US 3"}


def stac_version() -> str:
    import pystac

    return pystac.get_stac_version()
