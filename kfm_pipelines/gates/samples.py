"""A few rows as an example of what is wrong with them, for people who may not see everything.

Only where the policy leaves everything open; never a column that tells a place; texts cut short and made plain.
"""

from typing import TYPE_CHECKING

from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.text import truncate_line

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 3
MAX_VALUE_LENGTH = 40


def format_sample(subject: TableSubject, wrong: "pa.ChunkedArray | pa.Array", *columns: str) -> str:
    """What the first rows with a true value in `wrong` have in the primary key and in these columns."""
    import pyarrow.compute as pc

    if not subject.may_sample:
        return ""
    places = pc.indices_nonzero(pc.fill_null(wrong, False))[:SAMPLE_ROWS]
    hidden = set(subject.published.place_columns)
    named = dict.fromkeys((*subject.published.primary_key, *columns))
    shown = [name for name in named if name not in hidden and name in subject.table.column_names]
    rows = subject.table.select(shown).take(places).to_pylist()
    return "; ".join(", ".join(f"{name}={_format_value(row[name])}" for name in shown) for row in rows)


def _format_value(value: object) -> str:
    return truncate_line(str(value), MAX_VALUE_LENGTH)
