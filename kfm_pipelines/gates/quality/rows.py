"""Whether there are rows, and each of them once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.gates.samples import sample_of
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Finding, Rule, Severity, error

if TYPE_CHECKING:
    import pyarrow as pa


def _not_empty(subject: TableSubject) -> Iterator[Finding]:
    if subject.table.num_rows == 0:
        yield Finding("not-empty", Severity.WARN, "table", "at least one row", "none")


def _primary_key_unique(subject: TableSubject) -> Iterator[Finding]:
    keys = subject.table.select(subject.published.primary_key)
    if keys.num_rows < 2 or rises(keys):
        return
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    surplus = keys.num_rows - counted.num_rows
    if surplus:
        names = ", ".join(keys.column_names)
        sample = sample_of(subject, _repeated(keys, counted)) if subject.may_show else ""
        yield error("primary-key-unique", names, "one row each", f"{surplus} rows too many", sample)


def rises(keys: "pa.Table") -> bool:
    """Whether every row's key is greater than the one before it: then no two are the same. Compute sorts rows, so this
    mostly settles it, in a tenth of the time that counting them takes; when it does not, nothing is said."""
    import pyarrow.compute as pc

    rises = None
    for column in reversed(keys.columns):
        above, below = column.slice(0, len(column) - 1), column.slice(1)
        less = pc.less(above, below)
        rises = less if rises is None else pc.or_kleene(less, pc.and_kleene(pc.equal(above, below), rises))
    return bool(pc.all(pc.fill_null(rises, False)).as_py())


def _repeated(keys: "pa.Table", counted: "pa.Table") -> "pa.ChunkedArray":
    """Which rows have the first of the keys that are there more than once."""
    import pyarrow.compute as pc

    repeated = counted.filter(pc.greater(counted["count_all"], 1))
    same = None
    for name in keys.column_names:
        value = repeated[name][0]
        alike = pc.equal(keys[name], value) if value.is_valid else pc.is_null(keys[name])
        same = alike if same is None else pc.and_(same, alike)
    return same


NOT_EMPTY = Rule(
    "not-empty",
    _not_empty,
    "Look whether the source really had nothing for this window; if so, nothing has to be done.",
)
PRIMARY_KEY_UNIQUE = Rule(
    "primary-key-unique",
    _primary_key_unique,
    "Find out which of the rows is right and send the object again with one of each, or declare a longer primary key.",
)
