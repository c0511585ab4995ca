"""Rules on the file as bytes: footer, statistics, metadata and gaps between pages hold nothing protected."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from kfm_pipelines.care.verifier.case import BOXES, Case
from kfm_pipelines.care.verifier.evidence import Breach, read_table
from kfm_pipelines.care.verifier.protected_values import numbers_in, texts_in
from kfm_pipelines.care.verifier.rules.leaks import search_for_leaks
from kfm_pipelines.care.verifier.search.distinct import is_among
from kfm_pipelines.care.verifier.types import Floats

_SCHEMA_KEY = b"ARROW:schema"
_MIN_TEXT_BYTES = 6  # shorter texts occur by accident


def statistics_match_published_rows(case: Case) -> Iterator[Breach]:
    """Statistics computed from the original would reveal its smallest and largest values."""
    start, wrong = 0, 0
    for index in range(case.footer.num_row_groups):
        group = case.footer.row_group(index)
        rows = slice(start, start + group.num_rows)
        start += group.num_rows
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.is_stats_set and chunk.statistics.has_min_max:
                ends = pc.min_max(_row_values(case, chunk.path_in_schema, rows)).as_py()
                wrong += (chunk.statistics.min, chunk.statistics.max) != (ends["min"], ends["max"])
    if wrong:
        yield Breach(
            "footer-statistics", "data", "smallest and largest values of the published rows", f"{wrong} others"
        )


def boxes_match_published_shapes(case: Case) -> Iterator[Breach]:
    """Boxes computed from the original would reveal where its shapes end."""
    if case.boxes is None or case.geometry is None:
        return
    shapes = case.encoded(case.geometry)
    known = shapely.bounds(shapely.from_wkb(shapes.distinct.to_numpy(zero_copy_only=False), on_invalid="ignore"))
    expected = np.vstack([known.reshape(-1, 4), np.full((1, 4), np.nan)])[shapes.codes]  # none for no shape
    found = np.column_stack([case.boxes.field(place).to_numpy(zero_copy_only=False) for place in range(4)])
    found[case.boxes.is_null().to_numpy(zero_copy_only=False)] = np.nan
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if wrong := int((~same).any(axis=1).sum()):
        yield Breach("shape-boxes", "bbox", "the box of the published shape in every row", f"{wrong} rows without")


def _row_values(case: Case, name: str, rows: slice) -> pa.Array | pa.ChunkedArray:
    """Returns the values of some rows, distinct ones where these are known."""
    if case.boxes is not None and name.startswith(f"{BOXES}."):
        part = case.boxes.slice(rows.start, rows.stop - rows.start)
        return pc.struct_field(part, name.removeprefix(f"{BOXES}."))
    column = case.published.column(name)
    if pa.types.is_dictionary(column.type):
        return case.encoded(name).distinct_in(rows.start, rows.stop)
    return column.slice(rows.start, rows.stop - rows.start)


def metadata_holds_nothing_protected(case: Case) -> Iterator[Breach]:
    texts = [case.footer.created_by or ""]
    numbers: list[float] = []
    for metadata in _metadata(case):
        for name, value in metadata.items():
            text = value.decode("utf-8", "replace")
            document = _parse_json(text)
            texts += [name.decode("utf-8", "replace"), text, *texts_in(document)]
            numbers += numbers_in(document)
    yield from search_for_leaks(case, "metadata", texts, numbers)


def bytes_hold_no_coordinate(case: Case) -> Iterator[Breach]:
    blobs = (case.evidence.data, _arrow_schema_bytes(case))
    found = sum(count_coordinates(blob, case.places.coordinate_arrays) for blob in blobs)
    if found:
        yield Breach("leak-bytes", "data", "no protected coordinate in its bytes", f"{found} of them")


def footer_holds_no_text(case: Case) -> Iterator[Breach]:
    """Covers page indexes, bloom filters and the footer; pages are checked as columns."""
    blobs = (case.evidence.data[_end_of_pages(case) :], _arrow_schema_bytes(case))
    found = case.protected_phrases.count_in_bytes([blob.lower() for blob in blobs], _MIN_TEXT_BYTES)
    if found:
        yield Breach("leak-text", "footer", "no withheld value", f"{found} of them")


def bytes_are_canonical(case: Case) -> Iterator[Breach]:
    """Bytes that no row needs (unused dictionary entries, gaps between pages, row group borders) can hide anything."""
    rewritten = case.rewritten.result()
    if rewritten == case.evidence.data:
        return
    yield Breach("canonical-bytes", "data", "the bytes that writing its table again gives", "other bytes")
    again, _, _ = read_table(rewritten, "rewritten")
    published, _, _ = read_table(case.evidence.data, "data")
    if not again.equals(published, check_metadata=True):
        yield Breach("canonical-bytes", "rewritten", "the table of the data", "another table")


def count_coordinates(blob: bytes, places: Iterable[Floats]) -> int:
    """Counts occurrences of a place in bytes as Parquet or WKB would hold it, in either byte order. Places are sorted.
    Their first 16 bits rule out nearly all bytes. Equal numbers have equal bytes, as no place is zero or NaN."""
    marked = [part[(part.view(np.uint64) & np.uint64(0xFFFFFFFF)) != 0] for part in places]  # not mostly zeros
    heads = np.zeros(2**16, np.bool_)
    for part in marked:
        heads[part.view(np.uint64) >> np.uint64(48)] = True
    orders = (order for words in _eight_byte_words(blob) for order in (words, words.byteswap()))
    likely = [order[heads[order.view("<u2")[3::4]]].view("<f8") for order in orders]
    return sum(int(is_among(words, part).sum()) for words in likely for part in marked)


def _eight_byte_words(blob: bytes) -> Iterator[npt.NDArray[np.uint64]]:
    """Yields the bytes as 64-bit words, at all eight offsets."""
    for offset in range(8):
        length = (len(blob) - offset) // 8
        if length > 0:
            yield np.frombuffer(blob, dtype="<u8", count=length, offset=offset)


def _end_of_pages(case: Case) -> int:
    ends = [4]
    for index in range(case.footer.num_row_groups):
        group = case.footer.row_group(index)
        for place in range(group.num_columns):
            chunk = group.column(place)
            starts = [one for one in (chunk.dictionary_page_offset, chunk.data_page_offset) if one]
            ends.append(min(starts) + chunk.total_compressed_size)
    return max(ends)


def _metadata(case: Case) -> Iterator[dict[bytes, bytes]]:
    whole = dict(case.footer.metadata or {})
    yield {name: value for name, value in whole.items() if name != _SCHEMA_KEY}
    yield dict(case.schema.metadata or {})
    for field in case.schema:
        yield dict(field.metadata or {})


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _arrow_schema_bytes(case: Case) -> bytes:
    """Returns the Arrow schema, which the footer holds as base64."""
    try:
        return base64.b64decode((case.footer.metadata or {}).get(_SCHEMA_KEY, b""))
    except binascii.Error:
        return b""


RULES = (
    statistics_match_published_rows,
    boxes_match_published_shapes,
    metadata_holds_nothing_protected,
    bytes_hold_no_coordinate,
    footer_holds_no_text,
)
CANONICAL_RULES = (bytes_are_canonical,)
