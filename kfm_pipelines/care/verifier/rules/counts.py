"""Rules on counts: everything published stands for at least the policy's minimum of features, alone and combined.

Counts are of distinct features by the original's stable ids; published counts are only compared with them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import shapely

from kfm_pipelines.care.rules import Generalise, Group, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search.cells import cells_at, geodesic_distances
from kfm_pipelines.care.verifier.search.distinct import count_distinct, distinct
from kfm_pipelines.care.verifier.types import Numbers


def cells_reach_minimum(case: Case) -> Iterator[Breach]:
    for scope in _scopes_with_cells(case):
        few = int((_features_in_cells(case, scope) < case.k).sum())
        if few:
            yield Breach("cell-minimum", scope.name, f"at least {case.k} features in a cell", f"{few} cells with fewer")


def cell_counts_are_multiples(case: Case) -> Iterator[Breach]:
    """Otherwise two successive releases reveal the cell of a record that was added between them."""
    for scope in case.scopes:
        if not isinstance(scope.rule, Generalise):
            continue
        if odd := int((_features_in_cells(case, scope) % case.k > 0).sum()):
            expected = f"a multiple of {case.k} features in a cell"
            yield Breach("cell-steps", scope.name, expected, f"{odd} cells with another number")


def _features_in_cells(case: Case, scope: RuleScope) -> Numbers:
    """Counts per cell, or per record for groups, of which a cell can have several. Omits zeros."""
    cells = case.cells.positions[scope.link_records]
    placed = cells >= 0
    groups = scope.link_records[placed] if isinstance(scope.rule, Group) else cells[placed]
    counts = count_distinct(groups, case.origins.features[scope.link_rows[placed]], 0)
    return counts[counts > 0]


def records_without_place_reach_minimum(case: Case) -> Iterator[Breach]:
    """Someone who knows all members of a class could identify the few that lost their place."""
    for scope in case.scopes:
        if isinstance(scope.rule, Generalise | Suppress | Group):
            bare = ~case.placed[scope.link_records]
            number = len(distinct(case.origins.features[scope.link_rows[bare]]))
            if 0 < number < case.k:
                expected = f"none or at least {case.k} features without a place"
                yield Breach("placeless-minimum", scope.name, expected, "fewer")


def counts_match_features(case: Case) -> Iterator[Breach]:
    for scope in _grouped_scopes(case):
        true = count_distinct(scope.link_positions, case.origins.features[scope.link_rows], len(scope.records))
        published = case.values("records", scope.records).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = int(np.sum((published > true) | (true - published >= case.k)))
        if wrong:
            expected = "the number of features, rounded down to a multiple of the minimum"
            yield Breach("count-true", scope.name, expected, f"{wrong} other counts")


def overlaps_reach_minimum(case: Case) -> Iterator[Breach]:
    """Every intersection of published groups must have enough features too."""
    for scope in _grouped_scopes(case):
        rows, overlaps = _overlaps(scope)
        counts = count_distinct(overlaps, case.origins.features[rows], 0)
        few = int((counts < case.k).sum())
        if few:
            expected = f"at least {case.k} features wherever published groups overlap"
            yield Breach("combination-minimum", scope.name, expected, f"{few} overlaps with fewer")


def _overlaps(scope: RuleScope) -> tuple[Numbers, Numbers]:
    """Returns rows, and a number for each that is equal for rows in exactly the same records."""
    width = int(scope.link_records.max(initial=0)) + 2
    linked, records = np.divmod(np.sort(scope.link_rows * width + scope.link_records), width)
    starts = np.flatnonzero(np.diff(linked, prepend=-1))
    counts = np.diff(starts, append=len(linked))
    overlaps = np.zeros(len(starts), np.int64)
    for place in range(int(counts.max(initial=0))):
        more = counts > place
        overlaps *= width
        overlaps[more] += records[starts[more] + place] + 1
        overlaps = pa.array(overlaps).dictionary_encode().indices.to_numpy().astype(np.int64)
    return linked[starts], overlaps


def remainder_combines_several_groups(case: Case) -> Iterator[Breach]:
    """A remainder of one group would be that group without its name."""
    for scope in _grouped_scopes(case):
        if not isinstance(scope.rule, Group):
            continue
        bare = ~case.placed[scope.link_records]
        rows, records = scope.link_rows[bare], scope.link_records[bare]
        level = np.full(len(rows), min(scope.rule.resolutions))
        cells = cells_at(case.origins.longitudes[rows], case.origins.latitudes[rows], level)
        values = (case.original_values(name, rows).to_pylist() for name in scope.rule.by)
        groups = set(zip(cells.tolist(), *values, strict=True))
        if len(rows) and (len(np.unique(records)) > 1 or len(groups) < 2):
            yield Breach("remainder", scope.name, "one remainder, of two groups or more", "another")


def places_are_in_their_cells(case: Case) -> Iterator[Breach]:
    for scope in _scopes_with_cells(case):
        placed = case.cells.positions[scope.link_records] >= 0
        rows, records = scope.link_rows[placed], scope.link_records[placed]
        if scope.kind == "point":
            places = case.origins.longitudes[rows], case.origins.latitudes[rows]
            outside = int((~case.cells.contain(case.cells.positions[records], *places)).sum())
        else:
            outside = _count_out_of_reach(case, rows, records)
        if outside:
            yield Breach(
                "place-in-cell", scope.name, "every place in the cell it is told to be in", f"{outside} outside"
            )


def _count_out_of_reach(case: Case, rows: Numbers, records: Numbers) -> int:
    """Counts shapes that extend beyond the circle around the published centre."""
    cells = case.cells.positions[records]
    reach = case.floats("uncertainty_m", records)
    corners, of = shapely.get_coordinates(case.origins.shapes[rows], return_index=True)
    longitudes, latitudes = (degrees[cells] for degrees in case.cells.centres)
    away = geodesic_distances(longitudes[of], latitudes[of], corners[:, 0], corners[:, 1])
    return len(np.unique(of[~(away <= reach[of] + 0.001)]))


def _scopes_with_cells(case: Case) -> Iterator[RuleScope]:
    return (scope for scope in case.scopes if isinstance(scope.rule, Generalise | Group))


def _grouped_scopes(case: Case) -> Iterator[RuleScope]:
    return (scope for scope in case.scopes if isinstance(scope.rule, Group))


RULES = (
    cells_reach_minimum,
    records_without_place_reach_minimum,
    counts_match_features,
    overlaps_reach_minimum,
    remainder_combines_several_groups,
    places_are_in_their_cells,
)
STEP_RULES = (cell_counts_are_multiples,)
