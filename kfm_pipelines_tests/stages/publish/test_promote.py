"""Stage and promote: complete in the staging tier, then one swap, then the history; repeating it completes any stop."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.errors import IntegrityBroken, PointerMoved, ServiceUnavailable
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.producer.samples import streamflow_object
from kfm_pipelines.stages.publish import promote as promotion
from kfm_pipelines.stages.publish.promote import IntendedRelease, read_staged
from kfm_pipelines.stages.publish.stage import Attester, Candidate, Release, bounding_box, stage
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.transactions import KeyFacts
from kfm_pipelines.stores import Failures, Layout, WorkStore
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines.stores.layout import public_key
from kfm_pipelines_tests.fixtures.catalog.release import ENVIRONMENT, FACTS, SBOM, SIGNER
from kfm_pipelines_tests.fixtures.runs.batches import applied, publish_due
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site
from kfm_pipelines_tests.fixtures.stores.stops import Stopped, StoppingStore
from kfm_pipelines_tests.fixtures.tables import DATASET, computed, rows

KEY = FACTS.key
LAYOUT = Layout(DATASET.pipeline)
FIRST, SECOND = write_parquet(computed(rows(3))), write_parquet(computed(rows(5)))
CHANGES_OF_THE_FIRST_PROMOTION = 8
CHANGES_OF_A_PROMOTION = 6
ATTESTER = Attester(SIGNER, SBOM)
HISTORY = "catalog/usgs-streamflow/history"
SHARED = {LAYOUT.document(ENVIRONMENT.sbom), public_key(SIGNER.public.key_id)}  # independent of the data


@pytest.fixture
def store(tmp_path: Path) -> WorkStore:
    return WorkStore(FileStore(tmp_path / "store"))


def promote(store: WorkStore, layout: Layout, release: Release, txn: int, *, visible: bool = False) -> None:
    """Promotes one release as a publication does, without a database, and raises what prevents it."""
    staged = None if visible else read_staged(store, layout, release, txn)
    claim = Claim(release.key, txn, 1, "a run")
    facts = KeyFacts(release.key, (START, START), None, None, {}, ())
    for step in (promotion.create_objects, promotion.swap_items, promotion.replace_data):
        for error in step(store, layout, [IntendedRelease(claim, txn, release, staged, facts)]).values():
            raise error


def candidate(epoch: int = 1) -> Candidate:
    facts = replace(FACTS, inputs_hash=f"{epoch:064x}", table=DATASET.table, content_hash="", size=0, rows=0, bbox=None)
    return Candidate(facts, epoch, revision=epoch, inputs_hash=f"{epoch:064x}", fingerprint="f" * 64)


def staged(store: WorkStore, data: bytes = FIRST, epoch: int = 1, attester: Attester = ATTESTER) -> Release:
    store.write(LAYOUT.computed_table(KEY, epoch), b"unmasked")
    store.write(LAYOUT.masked_table(KEY, epoch), data)
    return stage(store, DATASET, candidate(epoch), hashlib.sha256(data).hexdigest(), attester)


def published(store: WorkStore, data: bytes = FIRST, epoch: int = 1) -> Release:
    release = staged(store, data, epoch)
    promote(store, LAYOUT, release, epoch)
    store.forget_work(LAYOUT, [KEY])
    return release


def promote_until(changes: int, store: WorkStore, release: Release, txn: int) -> None:
    """Promotes with a process that is stopped after so many changes of the store."""
    durable = store.durable
    store.durable = StoppingStore(durable, stop_after=changes)
    try:
        promote(store, LAYOUT, release, txn)
    finally:
        store.durable = durable


def everything(store: WorkStore) -> dict[str, str | None]:
    tiers = ("work", "objects", "processed", "catalog")
    return {path: store.digest(path) for tier in tiers for path in store.paths(tier)}


def content_found_by_readers(store: WorkStore) -> bytes | None:
    """Returns the bytes that the Item links to; fails if they are missing or different."""
    if store.digest(LAYOUT.item(KEY)) is None:
        return None
    asset = json.loads(store.read(LAYOUT.item(KEY)))["assets"]["data"]
    data = store.read(asset["href"].removeprefix("../../../"))
    assert asset["file:checksum"] == f"1220{hashlib.sha256(data).hexdigest()}"
    return data


def test_a_staged_revision_is_complete_and_invisible(store: WorkStore) -> None:
    release = staged(store)

    read_staged(store, LAYOUT, release, 1)
    assert store.read(LAYOUT.staged_data(KEY, 1)) == FIRST
    assert (release.rows, release.bytes, release.expected_item) == (3, len(FIRST), None)
    assert {path.split("/")[0] for path in everything(store)} == {"work"}


def test_the_list_of_software_must_match_the_documents_and_is_created_once(store: WorkStore) -> None:
    published(store)
    for path in SHARED:
        assert store.exists(path)
    with pytest.raises(IntegrityBroken, match="list of software"):
        staged(store, attester=Attester(SIGNER, b"another"))


def test_staging_again_gives_the_same_bytes(store: WorkStore) -> None:
    assert staged(store) == staged(store)


def test_a_release_can_be_read_back_from_the_log(store: WorkStore) -> None:
    for release in (staged(store), staged(store, write_parquet(computed(rows(0))))):
        assert Release.from_values(json.loads(json.dumps(release.as_detail()))) == release


def test_bytes_that_changed_after_the_verdict_are_not_staged(store: WorkStore) -> None:
    store.write(LAYOUT.masked_table(KEY, 1), SECOND)
    with pytest.raises(IntegrityBroken, match="the masked table changed after it was judged"):
        stage(store, DATASET, candidate(), hashlib.sha256(FIRST).hexdigest(), ATTESTER)
    assert store.paths("work/staged") == []


def test_without_a_masked_table_nothing_is_staged(store: WorkStore) -> None:
    with pytest.raises(ServiceUnavailable):
        stage(store, DATASET, candidate(), hashlib.sha256(FIRST).hexdigest(), ATTESTER)


def test_a_published_revision_is_found_by_its_item_and_by_its_name(store: WorkStore) -> None:
    release = published(store)

    assert content_found_by_readers(store) == store.read(LAYOUT.processed_data(KEY)) == FIRST
    assert set(everything(store)) == {
        LAYOUT.content(release.content_hash),
        *(LAYOUT.document(digest) for digest in {**release.documents, **release.records}.values()),
        LAYOUT.processed_data(KEY),
        LAYOUT.item(KEY),
        *SHARED,
    }


def test_a_new_revision_supersedes_the_old_one_whose_bytes_stay(store: WorkStore) -> None:
    old, new = published(store), published(store, SECOND, epoch=2)
    assert content_found_by_readers(store) == store.read(LAYOUT.processed_data(KEY)) == SECOND
    assert store.read(LAYOUT.content(old.content_hash)) == FIRST
    assert new.expected_item == old.item_hash


@pytest.mark.parametrize(
    ("is_first", "changes"),
    [
        *((True, changes) for changes in range(CHANGES_OF_THE_FIRST_PROMOTION)),
        *((False, changes) for changes in range(CHANGES_OF_A_PROMOTION)),
    ],
)
def test_a_promotion_stopped_anywhere_is_completed_by_repeating_it(
    tmp_path: Path, changes: int, is_first: bool
) -> None:
    store, undisturbed = (WorkStore(FileStore(tmp_path / name)) for name in ("stopped", "undisturbed"))
    for each in (store, undisturbed):
        if not is_first:
            published(each)
    published(undisturbed, SECOND, epoch=2)
    release = staged(store, SECOND, epoch=2)
    before = content_found_by_readers(store)

    with pytest.raises(Stopped):
        promote_until(changes, store, release, 2)
    assert content_found_by_readers(store) in (before, SECOND)
    with pytest.raises(Stopped):
        promote_until(0, store, release, 2)
    promote(store, LAYOUT, release, 2)
    store.forget_work(LAYOUT, [KEY])

    assert everything(store) == everything(undisturbed)


def test_a_promotion_makes_as_many_changes_as_are_tested_above(store: WorkStore) -> None:
    promote_until(CHANGES_OF_THE_FIRST_PROMOTION, store, staged(store), 1)
    promote_until(CHANGES_OF_A_PROMOTION, store, staged(store, SECOND, epoch=2), 2)


def test_a_finished_promotion_can_be_repeated(store: WorkStore) -> None:
    release = published(store)
    done = everything(store)
    promote(store, LAYOUT, release, 1, visible=True)
    assert everything(store) == done


def test_a_promotion_restores_the_file_under_its_known_name(store: WorkStore) -> None:
    published(store)
    again = staged(store, epoch=2)
    store.remove("processed")
    promote(store, LAYOUT, again, 2)
    assert store.read(LAYOUT.processed_data(KEY)) == FIRST


@pytest.mark.parametrize("path", [LAYOUT.staged_data(KEY, 1), LAYOUT.staged_item(KEY, 1)])
@pytest.mark.parametrize("data", [b"forged", None])
def test_changed_or_missing_staged_files_are_not_published(store: WorkStore, path: str, data: bytes | None) -> None:
    release = staged(store)
    if data is None:
        store.discard(path)
    else:
        store.write(path, data)

    for attempt in (read_staged, promote):
        name = path.rsplit("/", 1)[-1]
        reason = f"staged {name} has ended" if data is None else f"{name} is not what was staged"
        with pytest.raises(IntegrityBroken, match=reason):
            attempt(store, LAYOUT, release, 1)

    assert {path.split("/")[0] for path in everything(store)} == {"work"}


def test_a_pointer_that_moved_meanwhile_is_not_overwritten(store: WorkStore) -> None:
    release = staged(store, SECOND, epoch=2)
    published(store, FIRST, epoch=3)
    late = staged(store, SECOND, epoch=2)
    stale = Release.from_values(late.as_detail() | {"expected_item": release.expected_item})

    with pytest.raises(PointerMoved):
        promote(store, LAYOUT, stale, 2)

    assert content_found_by_readers(store) == store.read(LAYOUT.processed_data(KEY)) == FIRST


@pytest.mark.parametrize(
    ("table", "box"),
    [
        (rows(0), None),
        (rows(1, longitude=[-97.6], latitude=[38.8]), (-97.6, 38.8, -97.6, 38.8)),
        (rows(2, longitude=[-97.6, -102.0], latitude=[38.8, 37.0]), (-102.0, 37.0, -97.6, 38.8)),
        (rows(2, longitude=[None, None], latitude=[38.8, 37.0]), None),
    ],
)
def test_the_bounding_box_contains_all_rows(table: pa.Table, box: tuple[float, ...] | None) -> None:
    assert bounding_box(table, DATASET.table) == box


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("history") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, SOURCE_DATE_EPOCH="") as opened:
        yield opened


def publish_revision(site: Site, seed: int) -> Put:
    _, data = streamflow_object(START, seed=seed)
    put, before = site.put(0, data), applied(site.services).get(site.key(), 0)
    publish_due(site)
    assert applied(site.services) == {site.key(): before + 1}
    return put


def revision(site: Site, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((site.data / HISTORY / site.key() / f"{number}.json").read_text())
    return document


def linked(document: dict[str, Any], relation: str) -> list[str]:
    return [link["href"] for link in document["links"] if link["rel"] == relation]


def test_a_publication_writes_its_revision_and_the_one_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_revision(site, 0)
    # As if it had been published before histories existed.
    shutil.rmtree(site.data / HISTORY)
    publish_revision(site, 1)
    before = (site.data / HISTORY / site.key() / "1.json").read_bytes()

    paths: list[str] = []
    write_all = FileStore.write_all

    def counting(store: FileStore, files: Mapping[str, bytes]) -> Failures:
        paths.extend(path for path in files if path.startswith(HISTORY))
        return write_all(store, files)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "write_all", counting)
        put = publish_revision(site, 2)
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

    # A restored revision is unchanged, with the time of its first publication.
    tree = site.tree()
    (site.data / f"processed/usgs-streamflow/{site.key()}.parquet").unlink()
    (site.data / HISTORY / f"{site.key()}.json").unlink()
    site.send(site.auto_update_message(put))
    publish_due(site)
    assert site.tree() == tree


@pytest.mark.parametrize("tamper", [lambda text: "{", lambda text: text.replace("streamflow", "Streamflow", 1)])
def test_a_tampered_revision_is_left_out_of_the_history_and_never_sealed_again(
    site: Site, tamper: Callable[[str], str]
) -> None:
    publish_revision(site, 10)
    catalog = site.data / HISTORY / f"{site.key()}.json"
    *_, last = linked(json.loads(catalog.read_text()), "item")
    forged = catalog.parent / last
    forged.write_text(tamper(forged.read_text()))
    tampered = forged.read_bytes()

    publish_revision(site, 11)
    assert forged.read_bytes() == tampered
    assert last not in linked(json.loads(catalog.read_text()), "item")
    assert site.fetch("SELECT key FROM kfm.keys WHERE owner IS NOT NULL") == []
    forged.unlink()
