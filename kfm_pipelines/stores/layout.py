"""Where things are in a store. The only module that spells a path."""

from dataclasses import dataclass
from datetime import date

from kfm_pipelines.stores.interface import Store

RESTRICTED = "work/restricted"
MASKED = "work/masked"
STAGED = "work/staged"
TIERS = (RESTRICTED, MASKED, STAGED)
REFUSED = f"{RESTRICTED}/red"  # not a pipeline: their names have a dash in them
SHADOW = f"{RESTRICTED}/shadow"  # no pipeline is called that: each has a dash in its name


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one pipeline, which is one dataset."""

    pipeline: str

    def computed_table(self, key: str, epoch: int) -> str:
        """Hand-off before masking: restricted."""
        return f"{RESTRICTED}/{self.pipeline}/{key}/{epoch}/table.parquet"

    def crosswalk(self, key: str, epoch: int) -> str:
        """Which row of the unmasked table went into which published one: restricted like the table itself."""
        return f"{RESTRICTED}/{self.pipeline}/{key}/{epoch}/crosswalk.parquet"

    def masked_table(self, key: str, epoch: int) -> str:
        """Hand-off after masking: byte for byte what will be published."""
        return f"{MASKED}/{self.pipeline}/{key}/{epoch}/table.parquet"

    def staged_data(self, key: str, epoch: int) -> str:
        return f"{STAGED}/{self.pipeline}/{key}/{epoch}/data.parquet"

    def staged_item(self, key: str, epoch: int) -> str:
        return f"{STAGED}/{self.pipeline}/{key}/{epoch}/item.json"

    def staged_document(self, key: str, epoch: int, name: str) -> str:
        """A document that belongs to the release, like its provenance."""
        return f"{STAGED}/{self.pipeline}/{key}/{epoch}/{name}"

    def shadow(self, key: str, candidate_version: str) -> str:
        """What a candidate made of the key: restricted, because nobody has reviewed it and nobody will."""
        return f"{self.shadows()}/{key}/{candidate_version}.parquet"

    def shadows(self) -> str:
        return f"{SHADOW}/{self.pipeline}"

    def work_folders(self, key: str) -> tuple[str, ...]:
        """Every folder that a transaction over this key may have left something in."""
        return tuple(f"{tier}/{self.pipeline}/{key}" for tier in TIERS)

    def refused_folder(self, key: str, txn: int) -> str:
        """The folder with what a gate refused, for as long as somebody may want to look at it: restricted."""
        return f"{REFUSED}/{self.pipeline}/{key}/{txn}"

    def validation_report(self, key: str, txn: int) -> str:
        """What every gate said in one transaction."""
        return f"{self.validation_reports(key)}/{txn}.json"

    def validation_reports(self, key: str) -> str:
        return f"{REPORTS}/{self.pipeline}/{key}"

    def content(self, digest: str) -> str:
        """Immutable bytes, named by what they are."""
        return f"objects/sha256/{digest[:2]}/{digest}.parquet"

    def document(self, digest: str) -> str:
        return f"objects/sha256/{digest[:2]}/{digest}.json"

    def processed_data(self, key: str) -> str:
        """The current revision under the name people know."""
        return f"processed/{self.pipeline}/{key}.parquet"

    def item(self, key: str) -> str:
        """The pointer: whatever this document says is what is published."""
        return f"{self.items()}/{key}.json"

    def items(self) -> str:
        return f"catalog/{self.pipeline}/items"

    def collection(self) -> str:
        return f"catalog/{self.pipeline}/collection.json"

    def page(self, page: str) -> str:
        """What links the Items of a stretch of time: `page` is 2025, 2025/12 or 2025/12/04."""
        return f"catalog/{self.pipeline}/by-time/{page}/catalog.json"

    def page_dcat(self, page: str) -> str:
        """The same, as DCAT."""
        return f"catalog/{self.pipeline}/by-time/{page}/dcat.jsonld"

    def history(self, key: str) -> str:
        """What links every revision of a key that readers may see."""
        return f"{self.revisions(key)}.json"

    def revision(self, key: str, revision: int) -> str:
        """One revision as it was, also when it is no longer the current one."""
        return f"{self.revisions(key)}/{revision}.json"

    def revisions(self, key: str) -> str:
        return f"catalog/{self.pipeline}/history/{key}"

    def snapshot(self) -> str:
        """All Items of the collection in one table."""
        return f"catalog/{self.pipeline}/items.parquet"

    def data_docs(self) -> str:
        """The pages of Great Expectations about what is published."""
        return f"reports/data-docs/{self.pipeline}"


CATALOG = "catalog"
OBJECTS = "objects/sha256"
REPORTS = "reports/validation"
ROOT_CATALOG = f"{CATALOG}/catalog.json"
DCAT_CATALOG = f"{CATALOG}/dcat.jsonld"
PROVENANCE_GRAPH = "catalog/provenance.nq.gz"  # of every current release, as one graph each
KEYS = "catalog/keys"  # no pipeline is called that: each has a dash in its name


def catalog_document(name: str) -> str:
    """A document about the catalog as a whole."""
    return f"catalog/{name}"


UNROUTED = "unrouted"  # in place of a pipeline, for messages that belong to none


def public_key(key_id: str) -> str:
    """The public half of a key that documents are signed with."""
    return f"{KEYS}/{key_id}.pem"


def archived_event(identity: str) -> str:
    """A raw message, by the identity of its event."""
    return f"ingest/events/{identity}.json"


def replay_records(replay: str) -> str:
    """What each key of a replay has cost and come to, one line each."""
    return f"telemetry/replays/{replay}.jsonl"


def dead_letter(pipeline: str, day: date, name: str) -> str:
    """The record of what failed: `name` is the key, or the identity of a refused message."""
    return f"dlq/{pipeline}/{day.isoformat()}/{name}.json"


def quarantine_record(pipeline: str, day: date, name: str) -> str:
    return f"quarantine/{pipeline}/{day.isoformat()}/{name}.json"


def digest_of(path: str) -> str:
    """By which name immutable bytes go, whatever kind they are."""
    return path.rsplit("/", 1)[-1].partition(".")[0]


def is_item(path: str) -> bool:
    """Whether it is the current Item of a key."""
    match path.split("/"):
        case [tier, _, "items", name]:
            return tier == CATALOG and name.endswith(".json")
    return False


def is_key_document(path: str) -> bool:
    """Whether this is where an Item is, or what tells of a key's older ones."""
    parts = path.split("/")
    return len(parts) > 3 and parts[0] == CATALOG and parts[2] in ("items", "history")


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """What one transaction over one key has left in one tier."""

    tier: str
    pipeline: str
    key: str
    txn: int

    @property
    def path(self) -> str:
        return f"{self.tier}/{self.pipeline}/{self.key}/{self.txn}"


def work_folder(path: str) -> WorkFolder | None:
    """Whose work a file below `work/` is; None for what is kept longer than a transaction, which lies deeper."""
    match path.split("/"):
        case [work, tier, pipeline, key, txn, _, *_] if f"{work}/{tier}" in TIERS and txn.isdecimal():
            return WorkFolder(f"{work}/{tier}", pipeline, key, int(txn))
    return None


def clear_work(store: Store, layout: Layout, key: str) -> None:
    for folder in layout.work_folders(key):
        store.remove(folder)
