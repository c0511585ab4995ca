"""What gates judge (subjects), how (rules), and what they conclude (findings and a verdict)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kfm_pipelines.data_files import Attachments
from kfm_pipelines.declarations import Table
from kfm_pipelines.declarations.areas import Area
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.text import truncate_line

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 3
MAX_VALUE_LENGTH = 40
# Why records of the objects are not in the table.
DUPLICATES = "exact duplicates"
OUTSIDE_AREA = "outside the area"
OUTSIDE_WINDOW = "outside the window"
S = TypeVar("S")


class Severity(StrEnum):
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


WORST_FIRST = (Severity.ERROR, Severity.WARN, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that did not hold. Only `sample` may contain values of the data, and only where the policy allows it."""

    rule: str
    severity: Severity
    subject: str
    expected: str
    measured: str
    sample: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.measured}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Green unless a finding is an error."""

    gate: str
    findings: tuple[Finding, ...]
    rules: tuple[str, ...] = ()  # every rule that was checked

    @property
    def passed(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def reason(self) -> str:
        errors = [str(finding) for finding in self.findings if finding.severity is Severity.ERROR]
        more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
        return "; ".join(errors[:3]) + more


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """One check of a gate. `remedy` tells an operator in one sentence what to do about a finding. A rule that is not
    about every dataset names what it `concerns`, such as `attrgetter("dataset.scene")`; where that is None it does not
    run."""

    name: str
    check: Callable[[S], Iterator[Finding]]
    remedy: str
    concerns: Callable[[S], object] | None = None


@dataclass(frozen=True, slots=True)
class Baselines:
    previous_rows: int | None = None  # of the current revision
    neighbour_rows: tuple[int, ...] = ()  # of the windows around this one
    same_inputs_hash: str | None = None  # content hash that the same inputs gave under the same policy


@dataclass(frozen=True, slots=True)
class ApprovedSchema:
    """The schema last promised to readers, and the one they would get now."""

    version: int
    columns: Mapping[str, Mapping[str, Any]]
    now: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TableSubject:
    dataset: Dataset
    published: Table  # the declared table, or what the policy leaves of it
    table: "pa.Table"
    data: bytes  # the Parquet file the table was read from
    content_hash: str
    window: tuple[datetime, datetime]  # half-open: a reading at the end belongs to the next window
    may_sample: bool = False  # whether samples may contain values: only where the policy masks nothing
    baselines: Baselines = Baselines()
    approved: ApprovedSchema | None = None  # None skips the comparison
    attachments: Attachments | None = None  # what is published beside the table; None skips the rules about it
    area: Area | None = None  # None where the places were judged before masking, or there are none
    left_out: Mapping[str, int] = field(default_factory=dict)  # records that compute left out, by reason
    found_before_masking: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnouncedInput:
    """An input as its event announced it, and as it was when fetched."""

    asset_uri: str
    etag: str | None
    size: int | None
    found_etag: str | None
    found_size: int | None


@dataclass(frozen=True, slots=True)
class ReleaseSubject:
    dataset: Dataset
    key: str
    inputs: tuple[AnnouncedInput, ...]
    judged: str  # content hash of the table that passed the table gates
    digests: Mapping[str, str]  # recorded when staged, by file name: data.parquet, item.json, …
    staged: Mapping[str, bytes]  # by the same names
    policy: str  # name and version of the policy in force
    care: str  # masked, exempted or open
    verified: str | None  # digest of the release that the CARE verifier passed
    digest: str  # of this release


def judge(gate: str, rules: Sequence[Rule[S]], subject: S) -> Verdict:
    concerned = [rule for rule in rules if rule.concerns is None or rule.concerns(subject) is not None]
    findings = tuple(finding for rule in concerned for finding in rule.check(subject))
    return Verdict(gate, findings, tuple(rule.name for rule in concerned))


def error(rule: str, subject: str, expected: str, measured: str, sample: str = "") -> Finding:
    return Finding(rule, Severity.ERROR, subject, expected, measured, sample)


def count_true(condition: "pa.ChunkedArray | pa.Array") -> int:
    """Counts the true values; nulls do not count."""
    import pyarrow.compute as pc

    return int(pc.sum(condition).as_py() or 0)


def format_sample(subject: TableSubject, wrong: "pa.ChunkedArray | pa.Array", *columns: str) -> str:
    """Formats keys and these columns of the first wrong rows, without places; nothing if it may not be sampled."""
    import pyarrow.compute as pc

    if not subject.may_sample:
        return ""
    places = pc.indices_nonzero(pc.fill_null(wrong, False))[:SAMPLE_ROWS]
    hidden = set(subject.published.place_columns)
    named = dict.fromkeys((*subject.published.primary_key, *columns))
    visible = [name for name in named if name not in hidden and name in subject.table.column_names]
    rows = subject.table.select(visible).take(places).to_pylist()
    cells = [[f"{name}={truncate_line(str(row[name]), MAX_VALUE_LENGTH)}" for name in visible] for row in rows]
    return "; ".join(map(", ".join, cells))
