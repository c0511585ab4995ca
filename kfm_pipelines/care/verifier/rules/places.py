"""Rules on published places: exactly what the rule of each class and kind allows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from kfm_pipelines.care.rules import Displace, Generalise, Group, Leave, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.types import Flags, Numbers
from kfm_pipelines.parquet.distinct_values import NO_VALUE

_DEGREE_TOLERANCE = 1e-9  # a tenth of a millimetre, for different ways to compute one place


def places_follow_the_rule(case: Case) -> Iterator[Breach]:
    for scope in case.scopes:
        if isinstance(scope.rule, Suppress):
            yield from _check_suppressed(case, scope)
        elif isinstance(scope.rule, Generalise | Group):
            yield from _check_cells(case, scope)
        elif isinstance(scope.rule, Displace):
            yield from _check_displaced(case, scope, scope.rule)
        elif isinstance(scope.rule, Leave):
            yield from _check_unchanged(case, scope)


def counts_follow_the_rule(case: Case) -> Iterator[Breach]:
    for scope in case.scopes:
        counts = case.values("records", scope.records).fill_null(0).to_numpy(zero_copy_only=False)
        grouped = isinstance(scope.rule, Group)
        good = (counts > 0) & (counts % case.k == 0) if grouped else counts == 1
        if not good.all():
            expected = f"multiples of {case.k}" if grouped else "1 for each record"
            yield Breach("record-counts", scope.name, expected, f"{int((~good).sum())} other counts")


def _check_suppressed(case: Case, scope: RuleScope) -> Iterator[Breach]:
    placed = int(case.placed[scope.records].sum())
    if placed:
        yield Breach("place-suppressed", scope.name, "no place in any column", f"{placed} records with one")


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


def _allowed_resolutions(scope: RuleScope, resolutions: Numbers) -> Flags:
    if isinstance(scope.rule, Group):
        return np.isin(resolutions, scope.rule.resolutions)
    if not isinstance(scope.rule, Generalise):
        raise TypeError("only group and generalise rules have cells")
    # A shape too large for the rule's resolution is in a coarser cell.
    return resolutions == scope.rule.resolution if scope.kind == "point" else resolutions <= scope.rule.resolution


def _check_centres(case: Case, scope: RuleScope, records: Numbers, at: Numbers) -> Iterator[Breach]:
    for name, degrees in zip((case.longitude, case.latitude), case.cells.centres, strict=True):
        if name is not None:
            off = int((~(np.abs(case.floats(name, records) - degrees[at]) <= _DEGREE_TOLERANCE)).sum())
            if off:
                yield Breach("place-centre", f"{scope.name}: {name}", "the centre of the cell", f"{off} records off it")


def _check_outlines(case: Case, scope: RuleScope, records: Numbers, at: Numbers) -> Iterator[Breach]:
    if case.geometry is None:
        return
    geometries = case.encoded(case.geometry)
    found = geometries.codes[records]
    of_cell = np.full(len(case.cells.codes), NO_VALUE)
    of_cell[at] = found
    cells = np.flatnonzero(of_cell != NO_VALUE)
    known = geometries.distinct.take(pa.array(of_cell[cells])).to_numpy(zero_copy_only=False)
    shapes = shapely.from_wkb(known, on_invalid="ignore")
    clean = all(_is_canonical_wkb(*pair) for pair in zip(known, shapes, strict=True))
    expected = case.cells.outlines[cells]
    same = shapely.equals_exact(shapely.normalize(shapes), shapely.normalize(expected), _DEGREE_TOLERANCE)
    one_each = (found == of_cell[at]).all() and (found != NO_VALUE).all()
    if not (clean and one_each and np.all(same)):
        yield Breach("place-outline", f"{scope.name}: {case.geometry}", "the outline of the cell", "another shape")


def _is_canonical_wkb(value: bytes, shape: Any) -> bool:
    """Bytes that a WKB reader skips could hide anything."""
    return shape is not None and value == shapely.to_wkb(shape, byte_order=value[0])


def _check_uncertainty(case: Case, scope: RuleScope, records: Numbers, at: Numbers) -> Iterator[Breach]:
    """The uncertainty covers the cell and depends on it alone: a different one per record would be a hint."""
    found = case.floats("uncertainty_m", records)
    radii = case.cells.radii[at]
    largest = radii * 1.01 + 2 if scope.kind == "point" else radii * 2.1  # a shape may extend beyond its cell
    wrong = int((~((found >= radii * 0.999) & (found <= largest))).sum())
    first = np.empty(len(case.cells.codes))
    first[at[::-1]] = found[::-1]  # reversed, so that the first record of a cell wins
    several = int((found != first[at]).sum())
    if wrong or several:
        expected = "one radius for each cell, that holds it"
        yield Breach("place-uncertainty", scope.name, expected, f"{max(wrong, several)} records with another")


def _check_displaced(case: Case, scope: RuleScope, rule: Displace) -> Iterator[Breach]:
    wrong = _has_value(case, "cell", scope.records) | ~_geometry_matches_degrees(case, scope.records)
    found = case.values("uncertainty_m", scope.records).to_numpy(zero_copy_only=False)
    wrong |= ~(np.abs(found - rule.max_m) <= 1e-6)
    if wrong.any():
        expected = "a moved point, no cell, and the farthest it may have moved"
        yield Breach("place-displaced", scope.name, expected, f"{int(wrong.sum())} other records")


def _check_unchanged(case: Case, scope: RuleScope) -> Iterator[Breach]:
    records, rows = scope.link_records, scope.link_rows
    wrong = _has_value(case, "cell", records)
    wrong |= ~(case.values("uncertainty_m", records).to_numpy(zero_copy_only=False) == 0.0)
    for name in (case.longitude, case.latitude, case.geometry):
        if name is not None:
            found = case.values(name, records).to_numpy(zero_copy_only=False)
            wrong |= found != case.original_values(name, rows).to_numpy(zero_copy_only=False)
    if np.any(wrong):
        yield Breach("place-left", scope.name, "the place as it is", f"{int(wrong.sum())} other records")


def _geometry_matches_degrees(case: Case, records: Numbers) -> Flags:
    if case.geometry is None:
        return np.ones(len(records), np.bool_)
    values = case.values(case.geometry, records).to_numpy(zero_copy_only=False)
    points = shapely.from_wkb(values, on_invalid="ignore")
    agree: Flags = np.array([value is not None and len(value) == 21 for value in values], dtype=np.bool_)
    for name, degrees in ((case.longitude, shapely.get_x(points)), (case.latitude, shapely.get_y(points))):
        if name is not None:
            agree &= np.abs(case.values(name, records).to_numpy(zero_copy_only=False) - degrees) <= _DEGREE_TOLERANCE
    return agree


def _has_value(case: Case, name: str, records: Numbers) -> Flags:
    present: Flags = case.values(name, records).is_valid().to_numpy(zero_copy_only=False)
    return present


RULES = (places_follow_the_rule, counts_follow_the_rule)
