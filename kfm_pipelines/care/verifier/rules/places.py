"""What each record shows of its place: exactly what the rule of its class and kind allows, and nothing finer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.rules import Displace, Generalise, Group, Leave, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

_DEGREE_TOLERANCE = 1e-9  # a tenth of a millimetre: how far apart two ways of computing the same place may come out


def places_follow_the_rule(case: Case) -> Iterator[Breach]:
    for share in case.scopes:
        if isinstance(share.rule, Suppress):
            yield from _check_suppressed(case, share)
        elif isinstance(share.rule, Generalise | Group):
            yield from _check_cells(case, share)
        elif isinstance(share.rule, Displace):
            yield from _check_displaced(case, share, share.rule)
        elif isinstance(share.rule, Leave):
            yield from _check_unchanged(case, share)


def counts_follow_the_rule(case: Case) -> Iterator[Breach]:
    """One for each record, or multiples of the minimum for groups."""
    for share in case.scopes:
        counts = case.values("records", share.records).fill_null(0).to_numpy(zero_copy_only=False)
        grouped = isinstance(share.rule, Group)
        good = (counts > 0) & (counts % case.k == 0) if grouped else counts == 1
        if not good.all():
            expected = f"multiples of {case.k}" if grouped else "1 for each record"
            yield Breach("record-counts", share.name, expected, f"{int((~good).sum())} other counts")


def _check_suppressed(case: Case, scope: RuleScope) -> Iterator[Breach]:
    shown = int(case.placed[scope.records].sum())
    if shown:
        yield Breach("place-suppressed", scope.name, "no place in any column", f"{shown} records with one")


def _check_cells(case: Case, scope: RuleScope) -> Iterator[Breach]:
    records = scope.records[case.placed[scope.records]]
    at = case.cells.positions[records]
    wrong = int((at < 0).sum())
    if wrong:
        yield Breach("place-cell", scope.name, "an H3 cell", f"{wrong} records without")
        return
    too_fine = int((~_allowed_resolutions(scope, case.cells.resolutions))[at].sum())
    if too_fine:
        yield Breach(
            "place-resolution", scope.name, "cells as coarse as the rule says", f"{too_fine} records in others"
        )
    yield from _check_centres(case, scope, records, at)
    yield from _check_outlines(case, scope, records, at)
    yield from _check_uncertainty(case, scope, records, at)


def _allowed_resolutions(scope: RuleScope, resolutions: "Numbers") -> "Flags":
    import numpy as np

    if isinstance(scope.rule, Group):
        return np.isin(resolutions, scope.rule.resolutions)
    if not isinstance(scope.rule, Generalise):
        raise TypeError("only these two have cells")
    # What does not fit into one cell of the rule's resolution is in a coarser one.
    return resolutions == scope.rule.resolution if scope.kind == "point" else resolutions <= scope.rule.resolution


def _check_centres(case: Case, scope: RuleScope, records: "Numbers", at: "Numbers") -> Iterator[Breach]:
    import numpy as np

    for name, degrees in zip((case.longitude, case.latitude), case.cells.centres, strict=True):
        if name is not None:
            off = int((~(np.abs(case.floats(name, records) - degrees[at]) <= _DEGREE_TOLERANCE)).sum())
            if off:
                yield Breach("place-centre", f"{scope.name}: {name}", "the centre of the cell", f"{off} records off it")


def _check_outlines(case: Case, scope: RuleScope, records: "Numbers", at: "Numbers") -> Iterator[Breach]:
    import numpy as np
    import pyarrow as pa
    import shapely

    if case.geometry is None:
        return
    encoded = case.values(case.geometry, records).dictionary_encode()
    distinct = encoded.dictionary.to_numpy(zero_copy_only=False)
    shape = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    pairs = np.unique(np.column_stack([at, shape]), axis=0)
    pairs = pairs[pairs[:, 1] >= 0]
    found = shapely.from_wkb(distinct, on_invalid="ignore")
    clean = np.array([_is_canonical_wkb(*pair) for pair in zip(distinct, found, strict=True)], dtype=np.bool_)
    same = shapely.equals_exact(
        shapely.normalize(found[pairs[:, 1]]), shapely.normalize(case.cells.outlines[pairs[:, 0]]), _DEGREE_TOLERANCE
    )
    good = same & clean[pairs[:, 1]] if len(pairs) else np.empty(0, np.bool_)
    wrong = int((~good).sum()) + int(pa.compute.sum(encoded.indices.is_null()).as_py() or 0)
    if wrong or len(pairs) != len(np.unique(pairs[:, 0])):
        yield Breach("place-outline", f"{scope.name}: {case.geometry}", "the outline of the cell", "another shape")


def _is_canonical_wkb(value: bytes, shape: Any) -> bool:
    """Bytes that a reader of WKB would pass over can say anything."""
    import shapely

    return shape is not None and value == shapely.to_wkb(shape, byte_order=value[0])


def _check_uncertainty(case: Case, scope: RuleScope, records: "Numbers", at: "Numbers") -> Iterator[Breach]:
    """It has to hold the cell, and to follow from it: a number of its own for each record would be a hint."""
    import numpy as np

    found = case.floats("uncertainty_m", records)
    radii = case.cells.radii[at]
    largest = radii * 1.01 + 2 if scope.kind == "point" else radii * 2.1  # a shape may reach out of its cell
    wrong = int((~((found >= radii * 0.999) & (found <= largest))).sum())
    first = np.empty(len(case.cells.codes))
    first[at[::-1]] = found[::-1]  # where a cell comes again, the last to be set is the first there is
    several = int((found != first[at]).sum())
    if wrong or several:
        expected = "one radius for each cell, that holds it"
        yield Breach("place-uncertainty", scope.name, expected, f"{max(wrong, several)} records with another")


def _check_displaced(case: Case, scope: RuleScope, rule: Displace) -> Iterator[Breach]:
    import numpy as np

    wrong = _has_value(case, "cell", scope.records) | ~_geometry_matches_degrees(case, scope.records)
    found = case.values("uncertainty_m", scope.records).to_numpy(zero_copy_only=False)
    wrong |= ~(np.abs(found - rule.max_m) <= 1e-6)
    if wrong.any():
        expected = "a moved point, no cell, and the farthest it may have moved"
        yield Breach("place-displaced", scope.name, expected, f"{int(wrong.sum())} other records")


def _check_unchanged(case: Case, scope: RuleScope) -> Iterator[Breach]:
    import numpy as np

    records, rows = scope.link_records, scope.link_rows
    wrong = _has_value(case, "cell", records)
    wrong |= ~(case.values("uncertainty_m", records).to_numpy(zero_copy_only=False) == 0.0)
    for name in (case.longitude, case.latitude, case.geometry):
        if name is not None:
            found = case.values(name, records).to_numpy(zero_copy_only=False)
            wrong |= found != case.original_values(name, rows).to_numpy(zero_copy_only=False)
    if np.any(wrong):
        yield Breach("place-left", scope.name, "the place as it is", f"{int(wrong.sum())} other records")


def _geometry_matches_degrees(case: Case, records: "Numbers") -> "Flags":
    """Where a point is told as a geometry and as degrees, both say the same."""
    import numpy as np
    import shapely

    if case.geometry is None:
        return np.ones(len(records), np.bool_)
    values = case.values(case.geometry, records).to_numpy(zero_copy_only=False)
    points = shapely.from_wkb(values, on_invalid="ignore")
    agree: Flags = np.array([value is not None and len(value) == 21 for value in values], dtype=np.bool_)
    for name, degrees in ((case.longitude, shapely.get_x(points)), (case.latitude, shapely.get_y(points))):
        if name is not None:
            agree &= np.abs(case.values(name, records).to_numpy(zero_copy_only=False) - degrees) <= _DEGREE_TOLERANCE
    return agree


def _has_value(case: Case, name: str, records: "Numbers") -> "Flags":
    present: Flags = case.values(name, records).is_valid().to_numpy(zero_copy_only=False)
    return present


RULES = (places_follow_the_rule, counts_follow_the_rule)
