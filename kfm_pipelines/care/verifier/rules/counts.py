"""How many features stand behind everything that is shown: never fewer than the policy's minimum, alone or combined.

All counts are of distinct features, from the original's stable ids; what is published about itself is only compared.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm_pipelines.care.rules import Generalise, Group, Suppress
from kfm_pipelines.care.verifier.case import Case, RuleScope
from kfm_pipelines.care.verifier.evidence import Breach
from kfm_pipelines.care.verifier.search.cells import cells_at, geodesic_distances
from kfm_pipelines.care.verifier.search.distinct import count_distinct, distinct

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


def cells_reach_minimum(case: Case) -> Iterator[Breach]:
    for share in _scopes_with_cells(case):
        few = int((_features_in_cells(case, share) < case.k).sum())
        if few:
            yield Breach("cell-minimum", share.name, f"at least {case.k} features in a cell", f"{few} cells with fewer")


def cell_counts_are_multiples(case: Case) -> Iterator[Breach]:
    """Else a release and the one before it tell in which cell the one record lies that came between."""
    for share in case.scopes:
        if not isinstance(share.rule, Generalise):
            continue
        if odd := int((_features_in_cells(case, share) % case.k > 0).sum()):
            expected = f"a multiple of {case.k} features in a cell"
            yield Breach("cell-steps", share.name, expected, f"{odd} cells with another number")


def _features_in_cells(case: Case, scope: RuleScope) -> "Numbers":
    """Cell by cell; of groups, record by record, because a cell can have several. Only those that have any."""
    cells = case.cells.positions[scope.link_records]
    shown = cells >= 0
    groups = scope.link_records[shown] if isinstance(scope.rule, Group) else cells[shown]
    counts = count_distinct(groups, case.origins.features[scope.link_rows[shown]], 0)
    return counts[counts > 0]


def records_without_place_reach_minimum(case: Case) -> Iterator[Breach]:
    """Who knows all members of a class would find the few that lost their place by what is missing."""

    for share in case.scopes:
        if isinstance(share.rule, Generalise | Suppress | Group):
            bare = ~case.placed[share.link_records]
            number = len(distinct(case.origins.features[share.link_rows[bare]]))
            if 0 < number < case.k:
                expected = f"none or at least {case.k} features without a place"
                yield Breach("placeless-minimum", share.name, expected, "fewer")


def counts_match_features(case: Case) -> Iterator[Breach]:
    import numpy as np

    for share in _grouped_scopes(case):
        true = count_distinct(share.link_positions, case.origins.features[share.link_rows], len(share.records))
        said = case.values("records", share.records).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = int(np.sum((said > true) | (true - said >= case.k)))
        if wrong:
            expected = "the number of features, rounded down to a multiple of the minimum"
            yield Breach("count-true", share.name, expected, f"{wrong} other counts")


def overlaps_reach_minimum(case: Case) -> Iterator[Breach]:
    """Laying all published groups over each other gives pieces; each has to have enough features too."""
    for share in _grouped_scopes(case):
        rows, pieces = _overlaps(share)
        counts = count_distinct(pieces, case.origins.features[rows], 0)
        few = int((counts < case.k).sum())
        if few:
            expected = f"at least {case.k} features wherever published groups overlap"
            yield Breach("combination-minimum", share.name, expected, f"{few} overlaps with fewer")


def _overlaps(scope: RuleScope) -> "tuple[Numbers, Numbers]":
    """Rows, and for each a number that it shares with the rows that are in exactly the same records."""
    import numpy as np

    order = np.lexsort((scope.link_records, scope.link_rows))
    records = scope.link_records[order]
    rows, starts, counts = np.unique(scope.link_rows[order], return_index=True, return_counts=True)
    pieces, width = np.zeros(len(rows), np.int64), int(records.max(initial=0)) + 2
    for place in range(int(counts.max(initial=0))):
        more = counts > place
        pieces *= width
        pieces[more] += records[starts[more] + place] + 1
        pieces = np.unique(pieces, return_inverse=True)[1]
    return rows, pieces


def remainder_combines_several_groups(case: Case) -> Iterator[Breach]:
    """One remainder for a class, made of at least two groups: a remainder of one is that group with its name off."""
    import numpy as np

    for share in _grouped_scopes(case):
        if not isinstance(share.rule, Group):
            continue
        bare = ~case.placed[share.link_records]
        rows, records = share.link_rows[bare], share.link_records[bare]
        level = np.full(len(rows), min(share.rule.resolutions))
        cells = cells_at(case.origins.longitudes[rows], case.origins.latitudes[rows], level)
        groups = set(zip(cells.tolist(), *_group_values(case, share.rule, rows), strict=True))
        if len(rows) and (len(np.unique(records)) > 1 or len(groups) < 2):
            yield Breach("remainder", share.name, "one remainder, of two groups or more", "another")


def places_are_in_their_cells(case: Case) -> Iterator[Breach]:
    for share in _scopes_with_cells(case):
        shown = case.cells.positions[share.link_records] >= 0
        rows, records = share.link_rows[shown], share.link_records[shown]
        if share.kind == "point":
            places = case.origins.longitudes[rows], case.origins.latitudes[rows]
            outside = int((~case.cells.contain(case.cells.positions[records], *places)).sum())
        else:
            outside = _count_out_of_reach(case, rows, records)
        if outside:
            yield Breach(
                "place-in-cell", share.name, "every place in the cell it is told to be in", f"{outside} outside"
            )


def _count_out_of_reach(case: Case, rows: "Numbers", records: "Numbers") -> int:
    """Shapes that the circle around the published centre does not hold in whole."""
    import numpy as np
    import shapely

    cells = case.cells.positions[records]
    reach = case.floats("uncertainty_m", records)
    corners, of = shapely.get_coordinates(case.origins.shapes[rows], return_index=True)
    longitudes, latitudes = (degrees[cells] for degrees in case.cells.centres)
    away = geodesic_distances(longitudes[of], latitudes[of], corners[:, 0], corners[:, 1])
    return len(np.unique(of[~(away <= reach[of] + 0.001)]))


def _group_values(case: Case, rule: Group, rows: "Numbers") -> list[list[object]]:
    return [case.original_values(name, rows).to_pylist() for name in rule.by]


def _scopes_with_cells(case: Case) -> Iterator[RuleScope]:
    return (share for share in case.scopes if isinstance(share.rule, Generalise | Group))


def _grouped_scopes(case: Case) -> Iterator[RuleScope]:
    return (share for share in case.scopes if isinstance(share.rule, Group))


RULES = (
    cells_reach_minimum,
    records_without_place_reach_minimum,
    counts_match_features,
    overlaps_reach_minimum,
    remainder_combines_several_groups,
    places_are_in_their_cells,
)
STEP_RULES = (cell_counts_are_multiples,)
