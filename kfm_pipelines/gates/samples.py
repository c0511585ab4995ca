"""A few rows as an example of what is wrong with them, for people who may not see everything.

Only where the policy leaves everything open; never a column that tells a place; texts cut short and made plain.
"""

from typing import TYPE_CHECKING

from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN = 3
LONGEST_VALUE = 40


def sample_of(subject: TableSubject, wrong: "pa.ChunkedArray | pa.Array", *columns: str) -> str:
    """What the first rows with a true value in `wrong` have in the primary key and in these columns."""
    import pyarrow.compute as pc

    if not subject.may_sample:
        return ""
    places = pc.indices_nonzero(pc.fill_null(wrong, False))[:ROWS_SHOWN]
    hidden = set(subject.published.place_columns)
    named = dict.fromkeys((*subject.published.primary_key, *columns))
    shown = [name for name in named if name not in hidden and name in subject.table.column_names]
    rows = subject.table.select(shown).take(places).to_pylist()
    return "; ".join(", ".join(f"{name}={_shown(row[name])}" for name in shown) for row in rows)


def _shown(value: object) -> str:
    return one_line(str(value), LONGEST_VALUE)
