"""For every rule of the QA gate, a table that keeps it and one that breaks it."""

from collections.abc import Sequence

import shapely

from kfm_pipelines.declarations import Extent
from kfm_pipelines.gates.subject import TableSubject
from kfm_pipelines.gates.verdict import Severity
from kfm_pipelines_tests.gates.case import Case
from kfm_pipelines_tests.gates.given import HASH, outlines, subject
from kfm_pipelines_tests.stages.given import DATASET, minute, rows

POINT, BOW_TIE = shapely.Point(-97.6, 38.8).wkb, shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]).wkb
BOUNDED = {"ranges": [{"column": "discharge_cfs", "min": 0.0, "max": 1000.0}]}
WARNED = {"ranges": [{"column": "discharge_cfs", "min": 0.0, "severity": "warn"}]}
USUAL = {"statistics": [{"column": "discharge_cfs", "measure": "mean", "max": 1000.0, "severity": "info"}]}
MISSING = {"nulls": [{"column": "discharge_cfs", "warn_above": 0.3, "error_above": 0.6}]}
PREVIOUS = {"rows": {"previous": {"warn_percent": 20.0, "error_percent": 50.0}}}
AROUND = {"rows": {"neighbours": {"warn_percent": 20.0, "error_percent": 50.0}}}
KANSAS = DATASET.model_copy(update={"extent": Extent(west=-102.1, south=36.95, east=-94.55, north=40.05)})

QUALITY_CASES: Sequence[Case[TableSubject]] = (
    Case("not-empty", subject(rows(1)), subject(rows(0)), Severity.WARN),
    Case(
        "primary-key-unique",
        subject(rows(2, site_no=["a", "a"])),
        subject(rows(3, site_no=["a", "b", "a"], observed_at=[minute(0)] * 3)),
        Severity.ERROR,
    ),
    Case(
        "range",
        subject(rows(2, discharge_cfs=[0.0, 1000.0]), quality=BOUNDED),
        subject(rows(2, discharge_cfs=[0.0, 1000.1]), quality=BOUNDED),
        Severity.ERROR,
    ),
    Case(
        "range",
        subject(rows(2, discharge_cfs=[0.0, 1e9]), quality=WARNED),
        subject(rows(2, discharge_cfs=[0.0, -0.1]), quality=WARNED),
        Severity.WARN,
    ),
    Case(
        "statistic",
        subject(rows(2, discharge_cfs=[0.0, 2000.0]), quality=USUAL),
        subject(rows(2, discharge_cfs=[0.0, 2001.0]), quality=USUAL),
        Severity.INFO,
    ),
    Case(
        "null-share",
        subject(rows(10, discharge_cfs=[None] * 3 + [1.0] * 7), quality=MISSING),
        subject(rows(10, discharge_cfs=[None] * 6 + [1.0] * 4), quality=MISSING),
        Severity.WARN,
    ),
    Case(
        "null-share",
        subject(rows(10), quality=MISSING),
        subject(rows(10, discharge_cfs=[None] * 7 + [1.0] * 3), quality=MISSING),
        Severity.ERROR,
    ),
    Case("geometry-valid", outlines(POINT, None), outlines(POINT, BOW_TIE), Severity.ERROR),
    Case(
        "in-extent",
        subject(rows(1), dataset=KANSAS),
        subject(rows(1, longitude=[-94.5]), dataset=KANSAS),
        Severity.WARN,
    ),
    Case(
        "row-count-previous",
        subject(rows(8), quality=PREVIOUS, previous_rows=10),
        subject(rows(7), quality=PREVIOUS, previous_rows=10),
        Severity.WARN,
    ),
    Case(
        "row-count-previous",
        subject(rows(12), quality=PREVIOUS, previous_rows=10),
        subject(rows(16), quality=PREVIOUS, previous_rows=10),
        Severity.ERROR,
    ),
    Case(
        "row-count-neighbours",
        subject(rows(12), quality=AROUND, neighbour_rows=(10, 1000, 1)),
        subject(rows(13), quality=AROUND, neighbour_rows=(10, 1000, 1)),
        Severity.WARN,
    ),
    Case(
        "row-count-neighbours",
        subject(rows(8), quality=AROUND, neighbour_rows=(8, 12)),
        subject(rows(4), quality=AROUND, neighbour_rows=(8, 12)),
        Severity.ERROR,
    ),
    Case(
        "checksum-drift",
        subject(quality={"stable": True}, same_objects_gave=HASH),
        subject(quality={"stable": True}, same_objects_gave="b" * 64),
        Severity.ERROR,
    ),
    Case("checksum-drift", subject(), subject(same_objects_gave="b" * 64), Severity.INFO),
)
