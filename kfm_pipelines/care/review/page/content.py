"""The content of the review page as plain values, without tables, policies or templates."""

from dataclasses import dataclass

from kfm_pipelines.errors import PolicyRefused


@dataclass(frozen=True)
class RuleSentence:
    sensitivity: str
    kind: str
    sentence: str


@dataclass(frozen=True)
class PolicyView:
    name: str
    reason: str
    authority: str  # its full name, not its file
    reviewed_on: str
    review_by: str
    labels: tuple[str, ...]
    rules: tuple[RuleSentence, ...]
    minimum_count: int
    key_id: str | None
    kept: tuple[str, ...]
    withheld: tuple[str, ...]
    wording: str | None


@dataclass(frozen=True)
class Verification:
    passed: bool
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasureRow:
    name: str
    value: str
    explanation: str


@dataclass(frozen=True)
class SampleColumn:
    name: str
    is_number: bool = False


@dataclass(frozen=True)
class ReleaseSample:
    """The first rows to be published. Columns that only repeat the policy's wording are named instead."""

    columns: tuple[SampleColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    rows_in_all: int
    only_wording: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellChange:
    """Rows have no lasting identity, so a removed and an added row in the same cell count as one changed row."""

    cell: str | None  # None: rows without a cell
    added: int
    removed: int
    changed: int
    records_before: int
    records_after: int

    @property
    def size(self) -> int:
        return self.added + self.removed + self.changed


@dataclass(frozen=True)
class ReleaseDifference:
    rows_before: int
    rows_after: int
    records_before: int
    records_after: int
    cells: tuple[CellChange, ...]  # only those that differ, most changed first
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.cells or self.columns_added or self.columns_removed)


@dataclass(frozen=True)
class ReviewView:
    key: str
    title: str
    dataset: str
    window: str
    revision: int
    release_digest: str
    content_hash: str
    policy: PolicyView
    verification: Verification
    measures: tuple[MeasureRow, ...]
    sample: ReleaseSample
    difference: ReleaseDifference | None  # None for the first release
    after_map: bytes
    before_map: bytes | None
    restricted: bool

    def __post_init__(self) -> None:
        if self.before_map is not None and not self.restricted:
            raise PolicyRefused("an unrestricted page must not contain a map of the true places")
