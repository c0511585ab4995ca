"""Every revision stays readable in the history of its key, whose documents lead to each other."""

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site

HISTORY = "catalog/usgs-streamflow/history"


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("history") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, SOURCE_DATE_EPOCH="") as opened:
        yield opened


def publish(site: Site, seed: int) -> Put:
    _, data = streamflow_object(START, seed=seed)
    put = site.put(0, data)
    assert site.work()["published"] == 1
    return put


def revision(site: Site, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((site.data / HISTORY / site.key() / f"{number}.json").read_text())
    return document


def linked(document: dict[str, Any], relation: str) -> list[str]:
    return [link["href"] for link in document["links"] if link["rel"] == relation]


def test_a_publication_touches_its_revision_and_the_one_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site, 0)
    # As if it had been published before there was a history.
    shutil.rmtree(site.data / HISTORY)
    publish(site, 1)
    before = (site.data / HISTORY / site.key() / "1.json").read_bytes()

    paths: list[str] = []
    write = FileStore.write

    def counting(store: FileStore, path: str, data: bytes) -> None:
        paths.extend([path] if path.startswith(HISTORY) else [])
        write(store, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "write", counting)
        put = publish(site, 2)
    assert paths == [f"{HISTORY}/{site.key()}{name}.json" for name in ("/3", "/2", "")]
    assert (site.data / HISTORY / site.key() / "1.json").read_bytes() == before

    catalog = json.loads((site.data / HISTORY / f"{site.key()}.json").read_text())
    assert linked(catalog, "item") == [f"./{site.key()}/{number}.json" for number in (1, 2, 3)]
    revisions = [revision(site, number) for number in (1, 2, 3)]
    assert [linked(one, "predecessor-version") for one in revisions] == [[], ["./1.json"], ["./2.json"]]
    assert [linked(one, "successor-version") for one in revisions] == [["./2.json"], ["./3.json"], []]
    assert [one["properties"].get("deprecated") for one in revisions] == [True, True, None]
    assert [one["properties"]["version"] for one in revisions] == ["1", "2", "3"]
    rows = site.fetch("SELECT at FROM kfm.wal WHERE step = 'publish' ORDER BY id")
    assert [one["properties"]["published"] for one in revisions] == [f"{row['at']:%Y-%m-%dT%H:%M:%SZ}" for row in rows]

    # One that is restored is the same as before, with the time of when it was first published.
    tree = site.tree()
    (site.data / f"processed/usgs-streamflow/{site.key()}.parquet").unlink()
    (site.data / HISTORY / f"{site.key()}.json").unlink()
    site.send(site.auto_update_message(put))
    assert site.work()["published"] == 1
    assert site.tree() == tree


@pytest.mark.parametrize("tamper", [lambda text: "{", lambda text: text.replace("streamflow", "Streamflow", 1)])
def test_a_revision_that_somebody_changed_is_left_out_and_never_sealed_again(
    site: Site, tamper: Callable[[str], str]
) -> None:
    publish(site, 10)
    catalog = site.data / HISTORY / f"{site.key()}.json"
    *_, last = linked(json.loads(catalog.read_text()), "item")
    forged = catalog.parent / last
    forged.write_text(tamper(forged.read_text()))
    tampered = forged.read_bytes()

    publish(site, 11)
    assert forged.read_bytes() == tampered
    assert last not in linked(json.loads(catalog.read_text()), "item")
    assert site.fetch("SELECT key FROM kfm.keys WHERE owner IS NOT NULL") == []
    forged.unlink()
