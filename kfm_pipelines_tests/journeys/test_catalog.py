"""The catalog of a site that has published every dataset, read as a stranger would: every document is valid, every link
leads somewhere, every checksum matches."""

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pystac.validation import validate_dict
from pystac.validation.local_validator import get_local_schema_cache

from kfm_pipelines.catalog.documents import Kind, check_document
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines_tests.fixtures.catalog.official_schemas import official_validator, schemas
from kfm_pipelines_tests.fixtures.sites.published_site import publish_everything
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

KINDS: dict[str, Kind] = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}
Documents = Mapping[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three datasets, one of them masked and reviewed; one key has a second revision."""
    root = tmp_path_factory.mktemp("catalog") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        publish_everything(opened)
        _, other = streamflow_object(START, seed=1)
        opened.put(0, other)
        opened.work()
        yield opened


@pytest.fixture(scope="module")
def documents(site: Site) -> Documents:
    """Everything that can be reached from the entry, by following relative links and nothing else."""
    found: dict[Path, dict[str, Any]] = {}
    todo = [site.data / "catalog/catalog.json"]
    for path in todo:
        if path in found:
            continue
        found[path] = json.loads(path.read_text())
        links = [link for link in found[path]["links"] if link["rel"] not in ("describedby", "alternate")]
        todo += [(path.parent / link["href"]).resolve() for link in links if not urlsplit(link["href"]).scheme]
    return found


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_everything_in_the_catalog_can_be_reached(site: Site, documents: Documents) -> None:
    there = {path for path in (site.data / "catalog").rglob("*.json") if not path.name.endswith(".schema.json")}
    assert set(documents) == there
    assert sum("/items/" in str(path) for path in there) == 5
    assert sum("/history/" in str(path) for path in there) == 5 + 6


@pytest.mark.usefixtures("no_network")
def test_everything_is_valid_by_the_core_and_by_our_profile(documents: Documents) -> None:
    for document in documents.values():
        check_document(KINDS[document["type"]], document)


@pytest.mark.usefixtures("no_network")
def test_everything_is_valid_for_pystac_with_all_extensions(documents: Documents) -> None:
    validator = official_validator()
    for document in documents.values():
        checked = validate_dict(document, validator=validator)
        assert checked[1:] == document.get("stac_extensions", [])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("no_network")
def test_everything_is_valid_for_a_second_validator(documents: Documents, tmp_path: Path) -> None:
    from stac_validator.validate import StacValidate  # type: ignore[import-untyped]

    places = {}
    for number, (uri, schema) in enumerate({**get_local_schema_cache(), **schemas()}.items()):
        places[uri] = str(tmp_path / f"{number}.json")
        Path(places[uri]).write_text(json.dumps(schema))
    for path, document in documents.items():
        validator = StacValidate(schema_map=places)
        assert validator.validate_dict(json.loads(json.dumps(document))), (path, validator.message)
        [message] = validator.message
        assert {places[uri] for uri in document.get("stac_extensions", [])} <= set(message["schema"])


def test_every_file_is_there_with_its_size_and_checksum(documents: Documents) -> None:
    checked = 0
    for path, document in documents.items():
        for asset in document.get("assets", {}).values():
            data = (path.parent / asset["href"]).read_bytes()
            assert asset["file:size"] == len(data)
            assert asset["file:checksum"] == f"1220{hashlib.sha256(data).hexdigest()}"
            checked += 1
    assert checked >= 5 * 2 + 6 * 3


def test_nothing_names_the_machine(site: Site, documents: Documents) -> None:
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b")
    for path in documents:
        assert str(site.root) not in path.read_text()
        unsealed = {name: value for name, value in json.loads(path.read_text()).items() if name != "kfm:seal"}
        assert not host.search(json.dumps(unsealed))


def test_revisions_lead_to_each_other(site: Site) -> None:
    folder = site.data / "catalog/usgs-streamflow/history" / site.key()
    first, second = (json.loads((folder / f"{number}.json").read_text()) for number in (1, 2))
    assert [relations(one).get("predecessor-version") for one in (first, second)] == [None, "./1.json"]
    assert [relations(one).get("successor-version") for one in (first, second)] == ["./2.json", None]
    assert [one["properties"].get("deprecated") for one in (first, second)] == [True, None]
    assert first["properties"]["published"] == "2025-12-04T00:00:00Z"
    current = json.loads((site.data / f"catalog/usgs-streamflow/items/{site.key()}.json").read_text())
    assert second["assets"]["data"]["file:checksum"] == current["assets"]["data"]["file:checksum"]
    assert first["assets"]["data"]["file:checksum"] != current["assets"]["data"]["file:checksum"]
    assert {"manifest", "provenance", "data"} <= set(first["assets"])


def relations(document: Mapping[str, Any]) -> dict[str, str]:
    return {link["rel"]: link["href"] for link in document["links"]}


def test_a_collection_is_the_sum_of_what_is_published(site: Site) -> None:
    collection = json.loads((site.data / "catalog/usgs-streamflow/collection.json").read_text())
    [row] = site.fetch(
        """
        SELECT count(*) AS items, sum(rows)::int AS rows, sum(bytes)::int AS bytes FROM (
            SELECT DISTINCT ON (key) * FROM kfm.revisions WHERE key LIKE 'usgs%' ORDER BY key, revision DESC) current
        """
    )
    assert collection["kfm:totals"] == row
    assert collection["kfm:qa"] == {"status": "green", "keys_with_errors": 0}
    assert collection["extent"]["temporal"]["interval"] == [["2025-12-04T00:00:00Z", "2025-12-04T03:00:00Z"]]


def test_a_masked_collection_describes_the_table_that_is_published(site: Site) -> None:
    collection = json.loads((site.data / "catalog/heritage-sites/collection.json").read_text())
    [item] = [json.loads(path.read_text()) for path in (site.data / "catalog/heritage-sites/items").glob("*.json")]
    assert collection["table:columns"] == item["properties"]["table:columns"]
    assert "uncertainty_m" in json.dumps(collection["table:columns"])
