"""Rules about the polygons of a layer: none on another, and nothing left open between them, as the dataset declares.

Where a policy masks they are judged before masking, because the cells that are published lie on each other.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from kfm_pipelines.gates.verdict import Finding, Rule, Severity, TableSubject, format_sample

if TYPE_CHECKING:
    from kfm_pipelines.vector.types import Flags, Shapes


def _check_overlaps(subject: TableSubject) -> Iterator[Finding]:
    declared = subject.dataset.quality.topology
    if declared is None or declared.overlaps is None or not _is_judged(subject):
        return
    # Loads numpy and shapely, which loading the definitions must not.
    import numpy as np
    import pyarrow as pa

    from kfm_pipelines.vector.topology import find_overlaps

    shapes, rows, pairs, is_complete = _shapes(subject), np.zeros(subject.table.num_rows, np.bool_), 0, True
    for layer in _layers(subject):
        found = find_overlaps(shapes[layer], declared.tolerance_m2)
        rows[np.flatnonzero(layer)[found.shapes]] = True
        pairs, is_complete = pairs + found.pairs, is_complete and found.is_complete
    if pairs or not is_complete:
        expected = f"shapes that have at most {declared.tolerance_m2:g} m2 in common"
        count = f"{pairs} {'pair' if pairs == 1 else 'pairs'}"
        measured = f"{count} with more" if is_complete else f"{count} with more, and too many shapes to compare all"
        sample = format_sample(subject, pa.array(rows))
        yield Finding("overlaps", Severity(declared.overlaps), _column(subject), expected, measured, sample)


def _check_gaps(subject: TableSubject) -> Iterator[Finding]:
    declared = subject.dataset.quality.topology
    if declared is None or declared.gaps is None or not _is_judged(subject):
        return
    from kfm_pipelines.vector.topology import count_gaps

    shapes, gaps = _shapes(subject), 0
    expected = f"no gap of more than {declared.tolerance_m2:g} m2 between shapes"
    for layer in _layers(subject):
        found = count_gaps(shapes[layer], declared.tolerance_m2)
        if found is None:
            yield Finding("gaps", Severity.INFO, _column(subject), expected, "too many vertices, so not judged")
            return
        gaps += found
    if gaps:
        yield Finding("gaps", Severity(declared.gaps), _column(subject), expected, str(gaps))


def _is_judged(subject: TableSubject) -> bool:
    return subject.published == subject.dataset.table and subject.table.num_rows > 0


def _column(subject: TableSubject) -> str:
    return str(subject.dataset.table.geometry_column)


def _shapes(subject: TableSubject) -> "Shapes":
    """Returns the shape of each row; what cannot be read is None, and found by another rule."""
    import shapely

    values = subject.table.column(_column(subject)).to_numpy(zero_copy_only=False)
    shapes: Shapes = shapely.from_wkb(values, on_invalid="ignore")
    return shapes


def _layers(subject: TableSubject) -> "Iterator[Flags]":
    """Yields which rows are of one time; all of them where the table has no times."""
    import numpy as np

    name = subject.dataset.table.time_column
    if name is None:
        yield np.ones(subject.table.num_rows, np.bool_)
        return
    times = subject.table.column(name).combine_chunks().dictionary_encode().indices
    codes = times.fill_null(-1).to_numpy(zero_copy_only=False)
    yield from (codes == code for code in np.unique(codes))


_SEPARATE = (
    "Have the shapes drawn again at the source; declare a larger tolerance or `warn` if they are meant to overlap."
)
_CLOSE = "Ask the source what lies between these shapes; declare a larger tolerance if it is nothing."
_HAS_TOPOLOGY = attrgetter("dataset.quality.topology")
OVERLAPS = Rule("overlaps", _check_overlaps, _SEPARATE, _HAS_TOPOLOGY)
GAPS = Rule("gaps", _check_gaps, _CLOSE, _HAS_TOPOLOGY)
