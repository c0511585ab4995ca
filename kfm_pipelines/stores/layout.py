"""The store interface, and where things are in a store. No other module spells a path."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol
from urllib.parse import unquote, urlsplit

from kfm_pipelines.errors import KfmError, ObjectMissing

RESTRICTED = "work/restricted"
MASKED = "work/masked"
STAGED = "work/staged"
STAGED_DATA, STAGED_ITEM = "data.parquet", "item.json"
TIERS = (RESTRICTED, MASKED, STAGED)
# Every pipeline has a dash in its name, so none is called red, shadow, keys or unrouted.
REFUSED = f"{RESTRICTED}/red"
SHADOW = f"{RESTRICTED}/shadow"
UNROUTED = "unrouted"  # in place of a pipeline, for messages that belong to none
OBJECTS = "objects/sha256"
REPORTS = "reports/validation"
TABLES = "tables"
CATALOG = "catalog"
KEYS = f"{CATALOG}/keys"
ROOT_CATALOG = f"{CATALOG}/catalog.json"
DCAT_CATALOG = f"{CATALOG}/dcat.jsonld"
PROVENANCE_GRAPH = f"{CATALOG}/provenance.nq.gz"  # one graph for each current release


Failures = dict[str, KfmError]  # by path; empty when every file succeeded


@dataclass(frozen=True, slots=True)
class Swap:
    path: str
    data: bytes
    expected: str | None  # digest of the bytes to replace; None: there are none


class Store(Protocol):
    """Paths are relative, with forward slashes. Readers see the effect on each file completely or not at all.

    What a call wrote is durable when it returns. A call about many files costs little more than one about a single
    file, and the failure of one file does not affect the others."""

    @property
    def url(self) -> str: ...

    def read(self, path: str) -> bytes:
        """Returns the bytes at `path`. Raises ObjectMissing when there are none."""

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes at all paths where there are any."""

    def digest(self, path: str) -> str | None:
        """Returns the sha256 of the bytes at `path`, None when there are none."""

    def exists(self, path: str) -> bool:
        return path in self.exists_all([path])

    def exists_all(self, paths: Iterable[str]) -> set[str]:
        """Returns those paths where there are bytes."""

    def write(self, path: str, data: bytes) -> None:
        raise_failure(self.write_all({path: data}))

    def write_all(self, files: Mapping[str, bytes]) -> Failures:
        """Writes bytes to paths, of which the caller must be the only writer at the time."""

    def create(self, path: str, data: bytes) -> None:
        raise_failure(self.create_all({path: data}))

    def create_all(self, files: Mapping[str, bytes]) -> Failures:
        """Writes bytes to content-addressed names, once and for ever."""

    def replace(self, source: str, target: str) -> None:
        raise_failure(self.replace_all({target: source}))

    def replace_all(self, sources: Mapping[str, str]) -> Failures:
        """Replaces the bytes at each target with those at its content-addressed source."""

    def swap(self, path: str, data: bytes, expected: str | None) -> None:
        raise_failure(self.swap_all([Swap(path, data, expected)]))

    def swap_all(self, swaps: Sequence[Swap]) -> Failures:
        """Replaces the bytes at each path if they still have the expected digest or are these already; otherwise its
        failure is PointerMoved. Raises ValueError if two swaps are about the same path."""

    def remove(self, prefix: str) -> None:
        """Removes everything under the folder `prefix`, if anything."""

    def discard(self, path: str) -> None:
        """Removes the bytes at `path`, if any."""

    def paths(self, prefix: str) -> list[str]:
        """Returns every path under the folder `prefix`, sorted."""

    def foreign_entries(self, prefix: str) -> list[str]:
        """Returns what no store has put under the folder `prefix`: links, pipes, devices; sorted."""


def open_store(url: str) -> Store:
    """Opens the store at `file:///folder` or `s3://bucket/prefix`."""
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from kfm_pipelines.aws.objects import Bucket
        from kfm_pipelines.stores.s3 import S3Store

        return S3Store(Bucket(parts.netloc), parts.path.strip("/"))
    from kfm_pipelines.stores.files import FileStore

    return FileStore(unquote(parts.path))


def raise_failure(failures: Failures) -> None:
    """Raises the failure of a call about a single file, if any."""
    for failure in failures.values():
        raise failure


def by_path(swaps: Sequence[Swap]) -> dict[str, Swap]:
    found = {swap.path: swap for swap in swaps}
    if len(found) < len(swaps):
        raise ValueError("two swaps in one call are about the same path")
    return found


def read_if_exists(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path)
    except ObjectMissing:
        return None


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one pipeline, which is one dataset."""

    pipeline: str

    def computed_table(self, key: str, epoch: int) -> str:
        """The hand-off before masking: restricted."""
        return f"{RESTRICTED}/{self.pipeline}/{key}/{epoch}/table.parquet"

    def crosswalk(self, key: str, epoch: int) -> str:
        """Maps rows of the unmasked table to published rows: restricted like the table."""
        return f"{RESTRICTED}/{self.pipeline}/{key}/{epoch}/crosswalk.parquet"

    def computed_file(self, key: str, epoch: int, name: str) -> str:
        """A file beside the table before masking: restricted like it."""
        return f"{RESTRICTED}/{self.pipeline}/{key}/{epoch}/{name}"

    def masked_file(self, key: str, epoch: int, name: str) -> str:
        return f"{MASKED}/{self.pipeline}/{key}/{epoch}/{name}"

    def masked_table(self, key: str, epoch: int) -> str:
        """The hand-off after masking: exactly the bytes that will be published."""
        return f"{MASKED}/{self.pipeline}/{key}/{epoch}/table.parquet"

    def staged_data(self, key: str, epoch: int) -> str:
        return self.staged_document(key, epoch, STAGED_DATA)

    def staged_item(self, key: str, epoch: int) -> str:
        return self.staged_document(key, epoch, STAGED_ITEM)

    def staged_document(self, key: str, epoch: int, name: str) -> str:
        return f"{STAGED}/{self.pipeline}/{key}/{epoch}/{name}"

    def shadow(self, key: str, candidate_version: str) -> str:
        """A candidate's output for the key: restricted, because it is never reviewed."""
        return f"{self.shadows()}/{key}/{candidate_version}.parquet"

    def shadows(self) -> str:
        return f"{SHADOW}/{self.pipeline}"

    def work_folders(self, key: str) -> tuple[str, ...]:
        """Every folder in which a transaction over this key may leave files."""
        return tuple(f"{tier}/{self.pipeline}/{key}" for tier in TIERS)

    def refused_folder(self, key: str, txn: int) -> str:
        """Data that a gate refused, kept for inspection: restricted."""
        return f"{REFUSED}/{self.pipeline}/{key}/{txn}"

    def validation_report(self, key: str, txn: int) -> str:
        return f"{self.validation_reports(key)}/{txn}.json"

    def validation_reports(self, key: str) -> str:
        return f"{REPORTS}/{self.pipeline}/{key}"

    def content(self, digest: str) -> str:
        """Immutable data, named by its digest."""
        return f"{OBJECTS}/{digest[:2]}/{digest}.parquet"

    def data_file(self, digest: str, file_name: str) -> str:
        """An immutable file beside the data, with the suffix of its name."""
        return f"{OBJECTS}/{digest[:2]}/{digest}.{file_name.rpartition('.')[2]}"

    def document(self, digest: str) -> str:
        return f"{OBJECTS}/{digest[:2]}/{digest}.json"

    def processed_data(self, key: str) -> str:
        """The current revision under a stable name."""
        return f"processed/{self.pipeline}/{key}.parquet"

    def item(self, key: str) -> str:
        """The pointer: the Item here decides what is published."""
        return f"{self.items()}/{key}.json"

    def items(self) -> str:
        return f"{CATALOG}/{self.pipeline}/items"

    def collection(self) -> str:
        return f"{CATALOG}/{self.pipeline}/collection.json"

    def page(self, page: str) -> str:
        """Links the Items of a year, month or day: `page` is 2025, 2025/12 or 2025/12/04."""
        return f"{CATALOG}/{self.pipeline}/by-time/{page}/catalog.json"

    def page_dcat(self, page: str) -> str:
        return f"{CATALOG}/{self.pipeline}/by-time/{page}/dcat.jsonld"

    def history(self, key: str) -> str:
        """Links every revision of a key that readers may see."""
        return f"{self.revisions(key)}.json"

    def revision(self, key: str, revision: int) -> str:
        """A revision as published, current or not."""
        return f"{self.revisions(key)}/{revision}.json"

    def revisions(self, key: str) -> str:
        return f"{CATALOG}/{self.pipeline}/history/{key}"

    def snapshot(self) -> str:
        """All Items of the collection in one table."""
        return f"{CATALOG}/{self.pipeline}/items.parquet"

    def data_docs(self) -> str:
        """Great Expectations pages about the published data."""
        return f"reports/data-docs/{self.pipeline}"


def catalog_document(name: str) -> str:
    return f"{CATALOG}/{name}"


def public_key(key_id: str) -> str:
    return f"{KEYS}/{key_id}.pem"


def archived_event(identity: str) -> str:
    return f"ingest/events/{identity}.json"


def replay_records(replay: str) -> str:
    """Cost and outcome of each key of a replay, one line each."""
    return f"telemetry/replays/{replay}.jsonl"


def dead_letter(pipeline: str, day: date, name: str) -> str:
    """The record of a failure: `name` is the key, or the identity of a refused message."""
    return f"dlq/{pipeline}/{day.isoformat()}/{name}.json"


def quarantine_record(pipeline: str, day: date, name: str) -> str:
    return f"quarantine/{pipeline}/{day.isoformat()}/{name}.json"


def digest_of(path: str) -> str:
    """Returns the digest in the name of immutable data or an immutable document."""
    return path.rsplit("/", 1)[-1].partition(".")[0]


def is_item(path: str) -> bool:
    """Whether this is the current Item of a key."""
    match path.split("/"):
        case [tier, _, "items", name]:
            return tier == CATALOG and name.endswith(".json")
    return False


def is_key_document(path: str) -> bool:
    """Whether this is the current Item or part of the history of a key."""
    parts = path.split("/")
    return len(parts) > 3 and parts[0] == CATALOG and parts[2] in ("items", "history")


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """The files of one transaction over one key in one tier."""

    tier: str
    pipeline: str
    key: str
    txn: int

    @property
    def path(self) -> str:
        return f"{self.tier}/{self.pipeline}/{self.key}/{self.txn}"


def work_folder(path: str) -> WorkFolder | None:
    """Returns the work folder of a file; None for files kept longer than a transaction, which lie deeper."""
    match path.split("/"):
        case [work, tier, pipeline, key, txn, _, *_] if f"{work}/{tier}" in TIERS and txn.isdecimal():
            return WorkFolder(f"{work}/{tier}", pipeline, key, int(txn))
    return None


def clear_work(store: Store, layout: Layout, key: str) -> None:
    for folder in layout.work_folders(key):
        store.remove(folder)
