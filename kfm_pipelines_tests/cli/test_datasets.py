"""`kfm datasets check`: a declaration must agree with its policy, suites, candidates and authorities."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines_tests.fixtures.declarations import change, resources_in
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm_in_process


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


def check(resources: Path, *arguments: str) -> CommandResult:
    """Checks without a database or cloud services."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "AWS_"))}
    return kfm_in_process({**environment, "KFM_RESOURCES": str(resources)}, "datasets", "check", *arguments)


def with_column(resources: Path) -> None:
    path = resources / "datasets/heritage-sites.yaml"
    table = yaml.safe_load(path.read_text())["table"]
    table["columns"].append({"name": "finder", "type": "string", "nullable": True, "description": "Who found it"})
    change(path, table=table)


def replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def with_suite(resources: Path, column: str) -> str:
    expected = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}}
    (resources / "expectations/sites.json").write_text(json.dumps({"name": "sites", "expectations": [expected]}))
    return "sites"


def streamflow(resources: Path) -> Any:
    return yaml.safe_load((resources / "datasets/usgs-streamflow.yaml").read_text())


def candidate_of_heritage(resources: Path, **changes: Any) -> None:
    document = yaml.safe_load((resources / "datasets/heritage-sites.yaml").read_text())
    document["key"]["transform_version"] = "v2-0-0"
    (resources / "candidates/heritage-sites@v2-0-0.yaml").write_text(yaml.safe_dump(document | changes))


INVALID: dict[str, tuple[Callable[[Path], object], str]] = {
    "a column the policy is silent about": (
        with_column,
        "policy heritage-sites@1 does not suit heritage/sites: it does not say whether 'finder' is kept or withheld",
    ),
    "no extent": (
        lambda r: change(r / "datasets/heritage-sites.yaml", extent=None),
        "policy heritage-sites@1 does not suit heritage/sites: the dataset has no extent to hold coordinates against",
    ),
    "a nation's data without labels": (
        lambda r: change(r / "policies/tribal-areas.yaml", labels=[]),
        "policy tribal-areas@1 does not suit drought/tribal-areas: the data is a nation's, so the policy needs labels",
    ),
    "nobody who decides": (
        lambda r: change(r / "policies/heritage-sites.yaml", authority="nobody"),
        "policy heritage-sites@1 names the authority 'nobody', whom nobody declared",
    ),
    "an authority that makes no sense": (
        lambda r: change(r / "authorities/heritage-review-board.yaml", kind="king"),
        "heritage-review-board.yaml: kind: Input should be 'steward', 'sovereign' or 'agency', not 'king'",
    ),
    "no suite": (
        lambda r: (r / "expectations/usgs-streamflow.json").unlink(),
        "usgs-streamflow.json: cannot be read: No such file or directory",
    ),
    "a suite about another column": (
        lambda r: replace(r / "expectations/drought-tribal-areas.json", '"lsad"', '"LSAD"'),
        "drought-tribal-areas.json: lsad-code: 'LSAD' is not one of the columns gnis, area_name, area_name_lsad, lsad, "
        "valid_on, usdm_class, total_area_m2, class_area_m2, class_area_percent",
    ),
    "a suite about a column that is masked": (
        lambda r: change(r / "datasets/heritage-sites.yaml", quality={"suite": with_suite(r, "easting")}),
        "sites.json: expect_column_values_to_not_be_null: 'easting' is not one of the columns record, sensitivity, "
        "cell, longitude, latitude, geometry, uncertainty_m, records, period, condition, site_id, site_name, "
        "site_type, land_owner, surveyed_on",
    ),
    "a candidate that is not there": (
        lambda r: change(r / "datasets/usgs-streamflow.yaml", canary={"transform_version": "v2", "fraction": 0.5}),
        "usgs/streamflow: canary names candidates/usgs-streamflow@v2.yaml, which is not there",
    ),
    "a candidate with other inputs": (
        lambda r: change(
            r / "candidates/usgs-streamflow@v1-1-0.yaml", input={**streamflow(r)["input"], "max_bytes": 5}
        ),
        "usgs-streamflow@v1-1-0.yaml: input must be that of usgs/streamflow, whose candidate it is",
    ),
    "a candidate whose policy does not suit it": (
        lambda r: change(r / "candidates/usgs-streamflow@v1-1-0.yaml", policy="heritage-sites"),
        "policy heritage-sites@1 does not suit usgs/streamflow: 'period' is not one of the columns",
    ),
    "a candidate under another policy than the one that masks": (
        lambda r: candidate_of_heritage(r, policy="not-sensitive"),
        "heritage/sites@v2-0-0: policy must be 'heritage-sites'; what it shows is changed by a new version of it, "
        "which heritage-review-board decides about, not by a candidate",
    ),
    "no policy": (
        lambda r: (r / "policies/heritage-sites.yaml").unlink(),
        "there is no masking policy 'heritage-sites' in resources/policies, so nothing may be published",
    ),
}


def test_the_shipped_declarations_are_valid(resources: Path) -> None:
    assert check(resources).out == (
        "3 datasets valid: drought/tribal-areas, heritage/sites, usgs/streamflow\n"
        "1 candidate valid: usgs/streamflow@v1-1-0\n"
    )


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_declaration_is_reported_in_one_sentence(resources: Path, case: str) -> None:
    breaks, message = INVALID[case]
    breaks(resources)
    result = check(resources)
    assert (result.code, result.out, result.err) == (1, "", f"kfm: {message}\n")


def test_a_draft_is_checked_before_it_is_declared(resources: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yaml"
    shutil.copyfile(resources / "datasets/heritage-sites.yaml", draft)
    assert check(resources, str(draft), "--json").json == {
        "ok": True,
        "datasets": ["heritage/sites"],
        "candidates": [],
    }

    change(draft, extent=None)
    result = check(resources, str(draft))
    assert result.code == 1
    assert "the dataset has no extent" in result.err

    change(draft, canary={"transform_version": "v2", "fraction": 0.5})
    assert "canary names candidates/heritage-sites@v2.yaml, which is not there" in check(resources, str(draft)).err
