"""Published files that were tampered with, even with the signing key: what disagrees is reported, and nothing stops the
remaining checks."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kfm_pipelines.catalog.trust.signer import Signer, seal_document, signer_of
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.console.output import console
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.verify import Check, load_trust_root, verify_all, verify_key
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines.stores.layout import Layout
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import START, opened_site

ROOT = "catalog/catalog.json"
COLLECTION = "catalog/usgs-streamflow/collection.json"
Document = dict[str, Any]


@dataclass(frozen=True)
class Copy:
    """One key, published twice, and the key it was signed with."""

    folder: Path
    signer: Signer
    key: str

    @property
    def item(self) -> str:
        return f"catalog/usgs-streamflow/items/{self.key}.json"

    @property
    def history(self) -> str:
        return f"catalog/usgs-streamflow/history/{self.key}.json"

    def revision(self, number: int) -> str:
        return f"catalog/usgs-streamflow/history/{self.key}/{number}.json"

    def read(self, path: str) -> Document:
        document: Document = json.loads((self.folder / path).read_bytes())
        return document

    def reseal(self, path: str, change: Callable[[Document], object]) -> None:
        """Changes a document and signs it again."""
        document = self.read(path)
        change(document)
        data = json.dumps(document).encode()
        with suppress(UnicodeEncodeError):  # not encodable as UTF-8, so it gets no seal
            data = seal_document(path, data, self.signer)
        (self.folder / path).write_bytes(data)

    def failures(self) -> list[Check]:
        return [check for check in self.checks() if not check.ok]

    def checks(self) -> list[Check]:
        store = FileStore(self.folder)
        return [check for one in verify_all(store, self._trust(store)) for check in one.checks]

    def failures_of_key(self) -> list[Check]:
        store = FileStore(self.folder)
        return list(verify_key(store, self._trust(store), self.key).failed)

    def _trust(self, store: FileStore) -> Any:
        return load_trust_root(store, Path("/nonexistent/signing.pem"), None)


@pytest.fixture(scope="module")
def published(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    root = tmp_path_factory.mktemp("forged") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        opened.put()
        work_in_batches(opened)
        shutil.copytree(opened.data, root / "earlier")
        opened.put(data=_less_a_row())
        work_in_batches(opened)
        yield Copy(opened.data, signer_of(opened.services), opened.key())


@pytest.fixture
def earlier(published: Copy) -> Path:
    """The store as it was after the first publication."""
    return published.folder.parent / "earlier"


@pytest.fixture
def copy(published: Copy, tmp_path: Path) -> Copy:
    for tier in ("catalog", "objects", "processed", "reports/validation"):
        shutil.copytree(published.folder / tier, tmp_path / "copy" / tier)
    return Copy(tmp_path / "copy", published.signer, published.key)


def _less_a_row() -> bytes:
    _, data = streamflow_object(START)
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(data)).slice(1), sink)
    return sink.getvalue()


def run(copy: Copy, *arguments: str) -> tuple[int, str]:
    unset = dict.fromkeys(("KFM_STORE_URL", "KFM_SIGNING_KEY", "KFM_VERIFY_KEY"))
    environ: dict[str, str | None] = {**unset, "KFM_HOME": "/nonexistent"}
    result = CliRunner().invoke(kfm, ["verify", *arguments, "--store", str(copy.folder)], env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_the_file_name_is_complete_in_any_window(copy: Copy, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(console, "width", columns)
    (copy.folder / copy.item).write_text("{}")
    for arguments in ([copy.key], ["--all"]):
        code, output = run(copy, *arguments)
        assert code == 1
        assert f"FAILED  {copy.item}: " in output


def test_control_characters_are_not_printed(copy: Copy) -> None:
    (copy.folder / "catalog/\x1b[2Jnotes.json").write_text("{}")
    copy.reseal(ROOT, lambda root: root["links"].append({"rel": "child", "href": "./\ud800.json"}))
    code, output = run(copy, "--all")
    assert code == 1
    assert "\x1b" not in output
    assert "notes.json" in output


SEALS = ("documents around it are sealed",)
HREFS = {
    "none": "",
    "here": ".",
    "a folder": "./usgs-streamflow",
    "the root of the store": "..",
    "a climb": "../../../../etc/passwd",
    "a climb in escapes": "%2e%2e/%2e%2e/etc/passwd",
    "an absolute path in escapes": "../%2fetc/passwd",
    "too long": "./" + "a" * 5000,
    "no name": "./\x00.json",
    "half a character": "./\ud800.json",
    "a loop": "./loop.json",
    "a pipe": "./pipe.json",
    "a number": 1,
}
LINKS = {f"child, {name}": ("child", href) for name, href in HREFS.items()} | {
    f"item, {name}": ("item", HREFS[name]) for name in ("a folder", "a climb in escapes", "a loop", "a number")
}


@pytest.mark.parametrize(("rel", "href"), LINKS.values(), ids=LINKS)
def test_a_bad_link_is_reported_and_the_rest_is_checked(copy: Copy, rel: str, href: object) -> None:
    (copy.folder / "catalog/loop.json").symlink_to("loop.json")
    os.mkfifo(copy.folder / "catalog/pipe.json")
    copy.reseal(ROOT, lambda root: root["links"].append({"rel": rel, "href": href}))
    failures = copy.failures()
    assert any(check.file == ROOT and check.what in ("catalog", "links lead somewhere") for check in failures)
    assert copy.item not in {check.file for check in failures if check.what not in SEALS}
    copy.failures_of_key()


@pytest.mark.parametrize("href", HREFS.values(), ids=HREFS)
def test_a_bad_asset_link_is_reported(copy: Copy, href: object) -> None:
    document = copy.read(copy.item)
    document["assets"]["data"]["href"] = href
    (copy.folder / copy.item).write_text(json.dumps(document))
    assert copy.item in {check.file for check in copy.failures()}


@pytest.mark.parametrize("tier", ["catalog/usgs-streamflow/items", "processed/usgs-streamflow", "objects/sha256"])
@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)], ids=["folder", "pipe", "loop"]
)
def test_an_entry_that_is_not_a_file_is_reported(copy: Copy, tier: str, make: Callable[[Path], object]) -> None:
    path = next(one for one in sorted((copy.folder / tier).rglob("*")) if one.is_file())
    path.unlink()
    make(path)
    assert path.relative_to(copy.folder).as_posix() in " ".join(
        f"{check.file} {check.found}" for check in copy.failures()
    )


def test_a_public_key_that_is_not_a_file_is_ignored(copy: Copy) -> None:
    os.mkfifo(copy.folder / "catalog/keys/pipe.pem")
    (copy.folder / "catalog/keys/loop.pem").symlink_to("loop.pem")
    assert copy.failures_of_key() == []
    assert {Path(check.file).name for check in copy.failures()} == {"pipe.pem", "loop.pem"}


def _put_back(copy: Copy, earlier: Path, *paths: str) -> None:
    for path in paths:
        shutil.copyfile(earlier / path, copy.folder / path)


def test_an_older_revision_that_is_put_back_is_found_by_its_successor(copy: Copy, earlier: Path) -> None:
    assert copy.failures() == []
    _put_back(copy, earlier, copy.item, copy.history, f"processed/usgs-streamflow/{copy.key}.parquet")
    assert {(check.file, check.what) for check in copy.failures_of_key()} == {
        (copy.history, "history links every revision there is"),
    }
    (copy.folder / copy.revision(2)).unlink()  # the first one is still marked as superseded
    assert (copy.history, "revisions follow each other") in {(one.file, one.what) for one in copy.failures_of_key()}
    _put_back(copy, earlier, copy.revision(1))
    assert copy.failures_of_key() == []  # a complete rollback of the key; only the collection disagrees
    assert {check.file for check in copy.failures()} >= {COLLECTION}


def test_a_removed_key_is_noticed(copy: Copy) -> None:
    pages = [path.relative_to(copy.folder).as_posix() for path in copy.folder.glob("catalog/*/by-time/**/catalog.json")]
    for path in pages:
        copy.reseal(path, lambda page: page.update(links=[one for one in page["links"] if one["rel"] != "item"]))
    (copy.folder / copy.item).unlink()
    (copy.folder / f"processed/usgs-streamflow/{copy.key}.parquet").unlink()
    failures = {(check.file, check.what) for check in copy.failures()}
    assert (copy.history, "history has an Item") in failures
    assert (COLLECTION, "collection matches its Items") in failures
    assert "DCAT tells what its page holds" in {what for _, what in failures}


OF_REVISIONS: dict[str, tuple[int, Callable[[Document], object]]] = {
    "no successor": (1, lambda one: one.update(links=[x for x in one["links"] if x["rel"] != "successor-version"])),
    "no predecessor": (2, lambda one: one.update(links=[x for x in one["links"] if x["rel"] != "predecessor-version"])),
    "in force": (1, lambda one: one["properties"].pop("deprecated")),
    "deprecated": (2, lambda one: one["properties"].update(deprecated=True)),
    "another": (2, lambda one: one["properties"].update(version="7")),
}


@pytest.mark.parametrize(("number", "change"), OF_REVISIONS.values(), ids=OF_REVISIONS)
def test_revisions_follow_each_other(copy: Copy, number: int, change: Callable[[Document], object]) -> None:
    copy.reseal(copy.revision(number), change)
    assert [(one.file, one.what) for one in copy.failures()] == [(copy.history, "revisions follow each other")]


def test_a_history_links_every_revision(copy: Copy) -> None:
    copy.reseal(copy.history, lambda one: one.update(links=[x for x in one["links"] if x["href"][-6:] != "1.json"]))
    assert [(one.file, one.what) for one in copy.failures()] == [
        (copy.history, "history links every revision there is")
    ]


def test_a_withdrawn_revision_leaves_a_gap(copy: Copy) -> None:
    """The remaining revision does not link the withdrawn one."""
    (copy.folder / copy.revision(1)).unlink()
    copy.reseal(copy.history, lambda one: one.update(links=[x for x in one["links"] if x["href"][-6:] != "1.json"]))
    copy.reseal(
        copy.revision(2),
        lambda one: one.update(links=[x for x in one["links"] if x["rel"] != "predecessor-version"]),
    )
    assert copy.failures() == []


OF_COLLECTIONS: dict[str, Callable[[Document], object]] = {
    "totals": lambda one: one["kfm:totals"].update(items=3),
    "rows": lambda one: one["kfm:totals"].update(rows=1),
    "place": lambda one: one["extent"]["spatial"].update(bbox=[[0.0, 0.0, 1.0, 1.0]]),
    "times": lambda one: one["extent"]["temporal"]["interval"][0].reverse(),
    "versions": lambda one: one["summaries"].update({"kfm:transform_version": ["v9-9-9"]}),
}


@pytest.mark.parametrize("change", OF_COLLECTIONS.values(), ids=OF_COLLECTIONS)
def test_a_collection_agrees_with_its_items(copy: Copy, change: Callable[[Document], object]) -> None:
    copy.reseal(COLLECTION, change)
    assert [(one.file, one.what) for one in copy.failures()] == [(COLLECTION, "collection matches its Items")]


OF_DCAT: dict[str, Callable[[Document], object]] = {
    "checksum": lambda one: one["spdx:checksum"]["spdx:checksumValue"].update({"@value": "0" * 64}),
    "size": lambda one: one["dcat:byteSize"].update({"@value": "1"}),
    "data": lambda one: one["dcat:downloadURL"].update({"@id": "./nothing.parquet"}),
    "Item": lambda one: one["dcat:accessURL"].update({"@id": "./nothing.json"}),
    "elsewhere": lambda one: one["dcat:downloadURL"].update({"@id": "https://example.org/data.parquet"}),
}


@pytest.mark.parametrize("change", OF_DCAT.values(), ids=OF_DCAT)
def test_dcat_agrees_with_the_items(copy: Copy, change: Callable[[Document], object]) -> None:
    [page] = [path.relative_to(copy.folder).as_posix() for path in copy.folder.glob("catalog/*/by-time/**/dcat.jsonld")]
    copy.reseal(page, lambda document: change(document["dcat:distribution"][0]))
    assert [(one.file, one.what) for one in copy.failures()] == [(page, "DCAT tells what its page holds")]


def test_a_reader_during_a_publication_is_advised_to_try_again(copy: Copy, earlier: Path) -> None:
    """The Item is the new one, its history not written yet."""
    _put_back(copy, earlier, copy.history, copy.revision(1))
    (copy.folder / copy.revision(2)).unlink()
    [found] = [check.found for check in copy.failures_of_key() if check.file == copy.item and check.what == "attested"]
    assert "if a publication is running" in found


def test_a_validation_report_counts_while_it_is_kept(copy: Copy) -> None:
    *_, report = sorted((copy.folder / "reports/validation").rglob("*.json"))
    path = report.relative_to(copy.folder).as_posix()
    good = report.read_bytes()
    for check in (copy.failures_of_key, copy.failures):
        report.write_bytes(good.replace(b'"passed": true', b'"passed": false', 1))
        assert {(one.file, one.what) for one in check()} == {(path, "sealed")}
        copy.reseal(path, lambda document: document.update(passed=False))
        assert [(one.file, one.what) for one in check()] == [(path, "gates were green")]
    report.unlink()  # reports expire
    assert copy.failures() == []
    assert "no report of this release is kept" in " ".join(check.found for check in copy.checks())


def test_unchecked_entries_are_reported(copy: Copy, tmp_path: Path) -> None:
    orphan = Layout("").document(hashlib.sha256(b"{}").hexdigest())
    (copy.folder / orphan).parent.mkdir(exist_ok=True)
    (copy.folder / orphan).write_bytes(b"{}")
    (copy.folder / "catalog/notes.json.part").write_text("{}")
    code, output = run(copy, "--all")
    assert code == 0
    assert f"note    {orphan}: " in output
    assert "note    catalog/notes.json.part: " in output

    data = copy.folder / f"processed/usgs-streamflow/{copy.key}.parquet"
    data.rename(tmp_path / "elsewhere.parquet")
    data.symlink_to(tmp_path / "elsewhere.parquet")
    (copy.folder / "catalog/more").symlink_to(tmp_path)
    script = f"objects/{Path(orphan).stem}.sh"
    (copy.folder / script).write_bytes(b"{}")
    assert {check.file for check in copy.failures()} == {
        data.relative_to(copy.folder).as_posix(),
        "catalog/more",
        script,
    }
