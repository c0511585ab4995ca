"""A check of declarations finds everything at once, with line, field and what was probably meant."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.operations.datasets.check import CheckResult, check_declarations
from kfm_pipelines_tests.fixtures.declarations import change, resources_in

GAUGES = "datasets/usgs-streamflow.yaml"
SITES = "datasets/heritage-sites.yaml"


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


def errors(result: CheckResult) -> list[str]:
    return [str(problem) for problem in result.problems if problem.severity == "error"]


def replace(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), start=1) if text in line)


def test_the_shipped_declarations_are_valid(resources: Path) -> None:
    result = check_declarations(resources)
    assert errors(result) == []
    assert {one.dataset for one in result.datasets} >= {"drought/tribal-areas", "heritage/sites", "usgs/streamflow"}
    assert result.candidates == ("usgs/streamflow@v1-1-0",)


def test_every_mistake_is_reported_at_once_with_its_line_and_what_was_meant(resources: Path) -> None:
    """Also those that the model finds only in a declaration that is right otherwise."""
    path = resources / GAUGES
    replace(
        path,
        ("licence:", "license:"),
        ("policy: not-sensitive", "policy: not-sensitiv"),
        ("processor: table", "processor: tabel"),
        ("primary_key: [site_no,", "primary_key: [site_mo,"),
        ("column: gage_height_ft, min: -50", "column: gage_heigt_ft, min: -50"),
        ("when: eager", "wen: eager"),
        ("unit: ft3/s", "unit: ft3/z"),
        ("aoi: kansas_statewide", "aoi: kansas_stateside"),
        ("window: hour", "window: hours"),
    )
    found = {
        (problem.field, problem.line): problem.message for problem in check_declarations(resources, [path]).problems
    }
    expected = {
        ("license", "license:"): "did you mean 'licence'?",
        ("policy", "policy: not"): "did you mean 'not-sensitive'?",
        ("processor", "processor:"): "did you mean 'table'?",
        ("table.primary_key.0", "primary_key:"): "did you mean 'site_no'?",
        ("quality.ranges.1.column", "gage_heigt_ft"): "did you mean 'gage_height_ft'?",
        ("due.wen", "due:"): "is not a field; did you mean 'when'?",
        ("table.columns.5.unit", "ft3/z"): "'ft3/z' is not a unit; did you mean 'ft3/s'?",
        ("key.aoi", "aoi:"): "did you mean 'kansas_statewide'?",
        ("key.window", "window:"): "did you mean 'hour'?",
    }
    # An unknown window hides what depends on `key`, but nothing else.
    del expected["key.aoi", "aoi:"]
    assert found.keys() == {(field, line_of(path, text)) for field, text in expected}
    for (field, text), end in expected.items():
        assert found[field, line_of(path, text)].endswith(end), field


def test_a_mistake_in_one_section_does_not_hide_those_between_others(resources: Path) -> None:
    path = resources / GAUGES
    replace(
        path,
        ("title: USGS", "titel: USGS"),
        ("aoi: kansas_statewide", "aoi: kansas_stateside"),
        (r"(?P<hour>\d{2})", r"\d{2}"),
    )
    found = {problem.field: problem.message for problem in check_declarations(resources, [path]).problems}
    assert found["titel"] == "is not a field; did you mean 'title'?"
    assert (
        found["input.object_pattern"] == "input.object_pattern needs a group (?P<hour>…) to name a window of one hour"
    )
    assert "did you mean 'kansas_statewide'?" in found["key.aoi"]
    assert len(found) == 3


def test_a_column_that_is_wrong_does_not_hide_references_to_others(resources: Path) -> None:
    path = resources / GAUGES
    replace(
        path,
        ("{name: site_name, type: string,", "{name: site_name, type: text,"),
        ("time_column: observed_at", "time_column: observed"),
    )
    fields = {problem.field for problem in check_declarations(resources, [path]).problems}
    assert fields == {"table.columns.1.type", "table.time_column"}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("dataset: a/b\nkey: [a\ntitle: x\n", 3, "is not YAML"),
        ("dataset: a/b\n\ttitle: x\n", 2, "is not YAML"),
        ("dataset: a/b\ntitle: x\ndataset: a/c\n", 3, "is there twice"),
        ("dataset: a/b\n", 1, "is missing"),
        ("just text\n", 1, "Input should be a valid dictionary"),
        ("", 1, "Input should be a valid dictionary"),
    ],
)
def test_what_is_no_declaration_is_reported_with_its_line(
    resources: Path, tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "draft.yaml"
    path.write_text(text)
    problems = check_declarations(resources, [path]).problems
    assert any(problem.line == line and problem.message.startswith(message) for problem in problems), problems


def test_text_that_is_not_utf8_is_reported_with_its_line(resources: Path, tmp_path: Path) -> None:
    path = tmp_path / "draft.yaml"
    path.write_bytes(b"dataset: a/b\ntitle: \xff\n")
    assert [str(one) for one in check_declarations(resources, [path]).problems] == [
        "draft.yaml:2: is not YAML: it is not text in UTF-8"
    ]


def test_a_file_checked_in_place_does_not_collide_with_itself_nor_a_draft_with_what_it_replaces(
    resources: Path, tmp_path: Path
) -> None:
    assert errors(check_declarations(resources, [resources / GAUGES])) == []
    draft = tmp_path / "draft.yaml"
    shutil.copyfile(resources / GAUGES, draft)
    assert errors(check_declarations(resources, [draft])) == []


def test_what_belongs_to_a_sibling_is_taken(resources: Path) -> None:
    path = resources / "datasets/copy.yaml"
    shutil.copyfile(resources / GAUGES, path)
    change(path, dataset="usgs/other")
    assert [(one.field, one.message) for one in check_declarations(resources, [path]).problems] == [
        ("key.source", "key.source and key.aoi are the same as in 'usgs/streamflow', so their keys would collide"),
        ("input.prefix", "input.prefix overlaps that of 'usgs/streamflow'"),
    ]


def test_a_pattern_must_fit_its_prefix(resources: Path) -> None:
    path = resources / GAUGES
    replace(path, ("prefix: usgs/streamflow/", "prefix: usgs/flow/"))
    [problem] = [one for one in check_declarations(resources, [path]).problems if one.severity == "error"]
    assert problem.field == "input.object_pattern"
    assert problem.message.startswith("can match nothing under the prefix 'usgs/flow/'")
    assert problem.line == line_of(path, "object_pattern:")


def with_column(resources: Path) -> None:
    table = yaml.safe_load((resources / SITES).read_text())["table"]
    table["columns"].append({"name": "finder", "type": "string", "nullable": True, "description": "Who found it"})
    change(resources / SITES, table=table)


def with_suite(resources: Path, column: str) -> str:
    expected = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}}
    (resources / "expectations/sites.json").write_text(json.dumps({"name": "sites", "expectations": [expected]}))
    return "sites"


def gauges(resources: Path) -> Any:
    return yaml.safe_load((resources / GAUGES).read_text())


def candidate_of_heritage(resources: Path, **changes: Any) -> None:
    document = yaml.safe_load((resources / SITES).read_text())
    document["key"]["transform_version"] = "v2-0-0"
    (resources / "candidates/heritage-sites@v2-0-0.yaml").write_text(yaml.safe_dump(document | changes))


INVALID: dict[str, tuple[Callable[[Path], object], str]] = {
    "a column the policy is silent about": (
        with_column,
        "policy heritage-sites@1 does not suit heritage/sites: it does not say whether 'finder' is kept or withheld",
    ),
    "no extent": (
        lambda r: change(r / SITES, extent=None),
        "policy heritage-sites@1 does not suit heritage/sites: the dataset has no extent to hold coordinates against",
    ),
    "a nation's data without labels": (
        lambda r: change(r / "policies/tribal-areas.yaml", labels=[]),
        "policy tribal-areas@1 does not suit drought/tribal-areas: the data is a nation's, so the policy needs labels",
    ),
    "nobody who decides": (
        lambda r: change(r / "policies/heritage-sites.yaml", authority="heritage-board"),
        "names the authority 'heritage-board', whom nobody declared; did you mean 'heritage-review-board'?",
    ),
    "an authority that makes no sense": (
        lambda r: change(r / "authorities/heritage-review-board.yaml", kind="king"),
        "heritage-review-board.yaml: kind: Input should be 'steward', 'sovereign' or 'agency', not 'king'",
    ),
    "no suite": (
        lambda r: (r / "expectations/usgs-streamflow.json").unlink(),
        "quality.deep_suite: usgs-streamflow.json: cannot be read: No such file or directory",
    ),
    "a suite with a typing mistake": (
        lambda r: replace(r / GAUGES, ("deep_suite: usgs-streamflow", "deep_suite: usgs-streamflw")),
        "usgs-streamflw.json: cannot be read: No such file or directory; did you mean 'usgs-streamflow'?",
    ),
    "a suite about another column": (
        lambda r: replace(r / "expectations/drought-tribal-areas.json", ('"lsad"', '"LSAD"')),
        "drought-tribal-areas.json: lsad-code: 'LSAD' is not one of the columns gnis, area_name, area_name_lsad, lsad",
    ),
    "a suite about a column that is masked": (
        lambda r: change(r / SITES, quality={"suite": with_suite(r, "easting")}),
        "sites.json: expect_column_values_to_not_be_null: 'easting' is not one of the columns record",
    ),
    "a candidate that is not there": (
        lambda r: change(r / GAUGES, canary={"transform_version": "v2", "fraction": 0.5}),
        "usgs/streamflow: canary names candidates/usgs-streamflow@v2.yaml, which is not there",
    ),
    "a candidate with other inputs": (
        lambda r: change(r / "candidates/usgs-streamflow@v1-1-0.yaml", input={**gauges(r)["input"], "max_bytes": 5}),
        "usgs-streamflow@v1-1-0.yaml: input must be that of usgs/streamflow, whose candidate it is",
    ),
    "a candidate of nothing": (
        lambda r: shutil.copyfile(r / GAUGES, r / "candidates/nothing@v2.yaml"),
        "nothing@v2.yaml: is for no declared dataset; a candidate is called PIPELINE@VERSION.yaml",
    ),
    "a candidate whose policy does not suit it": (
        lambda r: change(r / "candidates/usgs-streamflow@v1-1-0.yaml", policy="heritage-sites"),
        "policy heritage-sites@1 does not suit usgs/streamflow: 'period' is not one of the columns",
    ),
    "a candidate under another policy than the one that masks": (
        lambda r: candidate_of_heritage(r, policy="not-sensitive"),
        "heritage/sites@v2-0-0: policy must be 'heritage-sites'; what it shows is changed by a new version of it",
    ),
    "no policy": (
        lambda r: (r / "policies/heritage-sites.yaml").unlink(),
        "there is no masking policy 'heritage-sites' in resources/policies, so nothing may be published",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_a_declaration_refers_to_must_suit_it(resources: Path, case: str) -> None:
    breaks, message = INVALID[case]
    breaks(resources)
    result = check_declarations(resources)
    assert not result.ok
    assert any(message in sentence for sentence in errors(result)), errors(result)


def test_what_is_still_to_be_decided_is_a_warning(resources: Path) -> None:
    change(resources / "policies/not-sensitive.yaml", sensitivity="undecided")
    change(resources / GAUGES, licence={"id": "LicenseRef-undecided", "url": "https://example.org"})
    result = check_declarations(resources, [resources / GAUGES])
    assert result.ok
    assert [(problem.field, problem.severity) for problem in result.problems] == [
        ("policy", "warning"),
        ("licence.id", "warning"),
    ]


def test_an_area_needs_a_shape_where_the_shape_counts(resources: Path) -> None:
    for name, severity in ((GAUGES, "error"), ("datasets/drought-tribal-areas.yaml", "warning")):
        document = yaml.safe_load((resources / name).read_text())
        change(resources / name, key={**document["key"], "aoi": "everywhere"})
        [problem] = check_declarations(resources, [resources / name]).problems
        assert (problem.field, problem.severity) == ("key.aoi", severity)


def test_a_split_into_too_many_cells_is_found_before_anything_arrives(resources: Path) -> None:
    for path in (resources / GAUGES, resources / "candidates/usgs-streamflow@v1-1-0.yaml"):
        replace(path, ("  window: hour", "  window: hour\n  split_by: {h3_res: 9}"))
    found = errors(check_declarations(resources))
    assert f"{line_of(resources / GAUGES, 'split_by')}: key.split_by.h3_res: more than 1000 cells" in found[0]


def test_a_split_by_a_column_that_is_not_there_is_found(resources: Path) -> None:
    replace(resources / GAUGES, ("  window: hour", "  window: hour\n  split_by: {column: county, members: [riley]}"))
    [found, *_] = errors(check_declarations(resources, [resources / GAUGES]))
    assert "'county' must be a column of the table of type string or int64" in found


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        (GAUGES, "h3_res: none", 'h3_res: "6"', "nothing that is published of usgs/streamflow has H3 cells"),
        ("datasets/esa-sentinel-2-scenes.yaml", "h3_res: none", 'h3_res: "6"', "must be none: "),
        (
            SITES,
            'h3_res: "5"',
            'h3_res: "4"',
            "must be 5, the finest resolution of cells in the policy heritage-sites@1",
        ),
        (SITES, 'h3_res: "5"', "h3_res: none", None),
        ("datasets/usgs-landsat-ndvi.yaml", 'h3_res: "8"', 'h3_res: "7"', None),
        ("datasets/noaa-mrms-reflectivity.yaml", 'h3_res: "6"', 'h3_res: "7"', None),
    ],
)
def test_a_resolution_in_the_key_is_that_of_published_cells(
    resources: Path, name: str, before: str, after: str, message: str | None
) -> None:
    replace(resources / name, (before, after))
    found = [
        one.message for one in check_declarations(resources, [resources / name]).problems if one.severity == "error"
    ]
    assert len(found) == (message is not None)
    assert message is None or message in found[0]
