"""Stage and publish: complete where no reader looks, then one swap; a stop anywhere is made good by doing it again."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kfm_pipelines.errors import IntegrityBroken, ObjectMissing, PointerMoved
from kfm_pipelines.parquet.parquet import write_parquet
from kfm_pipelines.stages.publish.promote import promote, verify_staged
from kfm_pipelines.stages.publish.stage import Attester, Candidate, Release, bounding_box, stage
from kfm_pipelines.stores import Layout, Store
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines.stores.layout import public_key
from kfm_pipelines_tests.fixtures.catalog.release import ENVIRONMENT, FACTS, SBOM, SIGNER
from kfm_pipelines_tests.fixtures.stores.stops import Stopped, StoppingStore
from kfm_pipelines_tests.fixtures.tables import DATASET, computed, rows

KEY = FACTS.key
LAYOUT = Layout(DATASET.pipeline)
FIRST, SECOND = write_parquet(computed(rows(3))), write_parquet(computed(rows(5)))
CHANGES_OF_THE_FIRST_PROMOTION = 11
CHANGES_OF_A_PROMOTION = 9
NOTARY = Attester(SIGNER, SBOM)
SHARED = {LAYOUT.document(ENVIRONMENT.sbom), public_key(SIGNER.public.key_id)}  # tell nothing of the data


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def candidate(epoch: int = 1) -> Candidate:
    facts = replace(FACTS, inputs_hash=f"{epoch:064x}", table=DATASET.table, content_hash="", size=0, rows=0, bbox=None)
    return Candidate(facts, epoch, revision=epoch, inputs_hash=f"{epoch:064x}", fingerprint="f" * 64)


def staged(store: Store, data: bytes = FIRST, epoch: int = 1) -> Release:
    store.write(LAYOUT.computed_table(KEY, epoch), b"unmasked")
    store.write(LAYOUT.masked_table(KEY, epoch), data)
    return stage(store, DATASET, candidate(epoch), hashlib.sha256(data).hexdigest(), NOTARY)


def published(store: Store, data: bytes = FIRST, epoch: int = 1) -> Release:
    release = staged(store, data, epoch)
    promote(store, LAYOUT, release, epoch)
    return release


def everything(store: Store) -> dict[str, str | None]:
    tiers = ("work", "objects", "processed", "catalog")
    return {path: store.digest(path) for tier in tiers for path in store.paths(tier)}


def bytes_a_reader_finds(store: Store) -> bytes | None:
    """What the Item leads to; an Item that leads nowhere, or to other bytes than it says, fails here."""
    if store.digest(LAYOUT.item(KEY)) is None:
        return None
    asset = json.loads(store.read(LAYOUT.item(KEY)))["assets"]["data"]
    data = store.read(asset["href"].removeprefix("../../../"))
    assert asset["file:checksum"] == f"1220{hashlib.sha256(data).hexdigest()}"
    return data


def test_a_staged_revision_is_complete_and_no_reader_sees_it(store: FileStore) -> None:
    release = staged(store)

    verify_staged(store, LAYOUT, release, 1)
    assert store.read(LAYOUT.staged_data(KEY, 1)) == FIRST
    assert (release.rows, release.bytes, release.expected_item) == (3, len(FIRST), None)
    assert {path.split("/")[0] for path in everything(store)} == {"work"}


def test_the_list_of_software_is_written_once_and_must_be_the_one_named(store: FileStore) -> None:
    published(store)
    for path in SHARED:
        assert store.exists(path)
    staged(store, epoch=2)
    assert not store.exists(LAYOUT.staged_document(KEY, 2, "sbom.cdx.json"))

    with pytest.raises(IntegrityBroken, match="list of software"):
        stage(store, DATASET, candidate(2), hashlib.sha256(FIRST).hexdigest(), Attester(SIGNER, b"another"))


def test_without_the_list_of_software_nothing_is_published(store: FileStore) -> None:
    published(store)
    assert store.read(LAYOUT.document(ENVIRONMENT.sbom)) == SBOM
    later = staged(store, SECOND, epoch=2)
    store.discard(LAYOUT.document(ENVIRONMENT.sbom))
    with pytest.raises(IntegrityBroken, match=r"is gone, and sbom\.cdx\.json is not staged"):
        promote(store, LAYOUT, later, 2)
    assert bytes_a_reader_finds(store) == FIRST


def test_staging_again_gives_the_same_bytes(store: FileStore) -> None:
    assert staged(store) == staged(store)


def test_a_release_survives_the_log(store: FileStore) -> None:
    for release in (staged(store), staged(store, write_parquet(computed(rows(0))))):
        assert Release.from_values(json.loads(json.dumps(release.as_detail()))) == release


def test_bytes_that_changed_after_the_verdict_are_not_staged(store: FileStore) -> None:
    store.write(LAYOUT.masked_table(KEY, 1), SECOND)
    with pytest.raises(IntegrityBroken, match="the masked table changed after it was judged"):
        stage(store, DATASET, candidate(), hashlib.sha256(FIRST).hexdigest(), NOTARY)
    assert store.paths("work/staged") == []


def test_without_a_masked_table_nothing_is_staged(store: FileStore) -> None:
    with pytest.raises(ObjectMissing):
        stage(store, DATASET, candidate(), hashlib.sha256(FIRST).hexdigest(), NOTARY)


def test_a_published_revision_is_found_by_its_item_and_by_its_name(store: FileStore) -> None:
    release = published(store)

    assert bytes_a_reader_finds(store) == store.read(LAYOUT.processed_data(KEY)) == FIRST
    assert set(everything(store)) == {
        LAYOUT.content(release.content_hash),
        *(LAYOUT.document(digest) for digest in {**release.documents, **release.records}.values()),
        LAYOUT.processed_data(KEY),
        LAYOUT.item(KEY),
        *SHARED,
    }


def test_a_new_revision_supersedes_the_old_one_whose_bytes_stay(store: FileStore) -> None:
    old, new = published(store), published(store, SECOND, epoch=2)
    assert bytes_a_reader_finds(store) == store.read(LAYOUT.processed_data(KEY)) == SECOND
    assert store.read(LAYOUT.content(old.content_hash)) == FIRST
    assert new.expected_item == old.item_hash


@pytest.mark.parametrize(
    ("is_first", "changes"),
    [
        *((True, changes) for changes in range(CHANGES_OF_THE_FIRST_PROMOTION)),
        *((False, changes) for changes in range(CHANGES_OF_A_PROMOTION)),
    ],
)
def test_a_promotion_stopped_anywhere_is_finished_by_doing_it_again(
    tmp_path: Path, changes: int, is_first: bool
) -> None:
    store, undisturbed = FileStore(tmp_path / "stopped"), FileStore(tmp_path / "undisturbed")
    for each in (store, undisturbed):
        if not is_first:
            published(each)
    published(undisturbed, SECOND, epoch=2)
    release = staged(store, SECOND, epoch=2)
    before = bytes_a_reader_finds(store)

    with pytest.raises(Stopped):
        promote(StoppingStore(store, stop_after=changes), LAYOUT, release, 2)
    assert bytes_a_reader_finds(store) in (before, SECOND)
    with pytest.raises(Stopped):
        promote(StoppingStore(store, stop_after=0), LAYOUT, release, 2)
    promote(store, LAYOUT, release, 2)

    assert everything(store) == everything(undisturbed)


def test_a_promotion_makes_as_many_changes_as_are_tried_above(store: FileStore) -> None:
    promote(StoppingStore(store, stop_after=CHANGES_OF_THE_FIRST_PROMOTION), LAYOUT, staged(store), 1)
    assert store.paths("work") == []
    promote(StoppingStore(store, stop_after=CHANGES_OF_A_PROMOTION), LAYOUT, staged(store, SECOND, epoch=2), 2)
    assert store.paths("work") == []


def test_a_finished_promotion_can_be_repeated(store: FileStore) -> None:
    release = published(store)
    done = everything(store)
    promote(store, LAYOUT, release, 1)
    assert everything(store) == done


def test_a_finished_promotion_restores_the_name_people_know(store: FileStore) -> None:
    published(store)
    again = staged(store, epoch=2)
    store.remove("processed")
    promote(store, LAYOUT, again, 2)
    assert store.read(LAYOUT.processed_data(KEY)) == FIRST


@pytest.mark.parametrize("path", [LAYOUT.staged_data(KEY, 1), LAYOUT.staged_item(KEY, 1)])
@pytest.mark.parametrize("data", [b"forged", None])
def test_what_is_not_what_was_staged_is_not_published(store: FileStore, path: str, data: bytes | None) -> None:
    release = staged(store)
    if data is None:
        (Path(store.url.removeprefix("file://")) / path).unlink()
    else:
        store.write(path, data)

    for attempt in (verify_staged, promote):
        with pytest.raises(IntegrityBroken, match=f"{path.rsplit('/', 1)[-1]} is not what was staged"):
            attempt(store, LAYOUT, release, 1)

    assert {path.split("/")[0] for path in everything(store)} == {"work"}


def test_a_pointer_that_moved_meanwhile_is_not_overwritten(store: FileStore) -> None:
    release = staged(store, SECOND, epoch=2)
    published(store, FIRST, epoch=3)
    late = staged(store, SECOND, epoch=2)
    stale = Release.from_values(late.as_detail() | {"expected_item": release.expected_item})

    with pytest.raises(PointerMoved):
        promote(store, LAYOUT, stale, 2)

    assert bytes_a_reader_finds(store) == store.read(LAYOUT.processed_data(KEY)) == FIRST


@pytest.mark.parametrize(
    ("table", "box"),
    [
        (rows(0), None),
        (rows(1, longitude=[-97.6], latitude=[38.8]), (-97.6, 38.8, -97.6, 38.8)),
        (rows(2, longitude=[-97.6, -102.0], latitude=[38.8, 37.0]), (-102.0, 37.0, -97.6, 38.8)),
        (rows(2, longitude=[None, None], latitude=[38.8, 37.0]), None),
    ],
)
def test_the_box_is_around_all_rows(table: pa.Table, box: tuple[float, ...] | None) -> None:
    assert bounding_box(table, DATASET.table) == box
