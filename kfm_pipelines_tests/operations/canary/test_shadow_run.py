"""A candidate for sensitive data is masked like what is published, compared without revealing data, and restricted."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.operations.canary.evaluate import CanaryRun
from kfm_pipelines.operations.canary.jobs import comparison_record
from kfm_pipelines.operations.canary.promote import read_candidate_status
from kfm_pipelines.operations.canary.tables import KeyComparison
from kfm_pipelines.stages.compute.transforms import TRANSFORMS
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

VERSION = "v2-0-0"
CANARY = {"transform_version": VERSION, "fraction": 1.0, "keys": 1}
SHADOW = f"work/restricted/shadow/heritage-sites/{KEY}/{VERSION}.parquet"


def declare(register: Register, **changes: Any) -> None:
    """Writes a candidate that is the current declaration under another version, with these changes."""
    resources = register.site.services.settings.resources
    declared = resources / "datasets/heritage-sites.yaml"
    change(declared, canary=CANARY)
    register.site.services.__dict__.pop("datasets", None)
    document = yaml.safe_load(declared.read_text())
    del document["canary"]
    document["key"]["transform_version"] = VERSION
    (resources / f"candidates/heritage-sites@{VERSION}.yaml").write_text(yaml.safe_dump(document | changes))


def compared(register: Register, **changes: Any) -> KeyComparison:
    declare(register, **changes)
    run = CanaryRun(register.site.services, register.dataset, "a run")
    [found] = run.compare([KEY])
    assert (run.skipped, run.failed) == ({}, {})
    return found


def refused(register: Register, **changes: Any) -> str:
    declare(register, **changes)
    run = CanaryRun(register.site.services, register.dataset, "a run")
    assert run.compare([KEY]) == []
    with pytest.raises(DeclarationInvalid) as refusal:
        read_candidate_status(register.site.services, register.dataset)
    assert run.failed == {KEY: str(refusal.value)}
    return str(refusal.value)


def moved(table: pa.Table) -> pa.Table:
    """Every site half a degree to the north, and in another condition."""
    latitude, condition = table.column_names.index("latitude"), table.column_names.index("condition")
    table = table.set_column(latitude, "latitude", pc.add(table["latitude"], 0.5))
    return table.set_column(condition, "condition", pa.array([f"poor {n}" for n in range(table.num_rows)]))


def numbers_in(document: Any) -> list[float]:
    match document:
        case bool() | str() | None:
            return []
        case int() | float():
            return [document]
        case dict():
            return [number for value in document.values() for number in numbers_in(value)]
        case _:
            return [number for value in document for number in numbers_in(value)]


def finer(register: Register) -> str:
    """A policy that shows more than the one in force."""
    policies = register.site.services.settings.resources / "policies"
    document = yaml.safe_load((policies / "heritage-sites.yaml").read_text())
    document["policy"] = "finer"
    document["classes"]["generalised"]["point"]["resolution"] = 6
    (policies / "finer.yaml").write_text(yaml.safe_dump(document))
    return "finer"


def retyped(register: Register) -> dict[str, Any]:
    table: dict[str, Any] = register.dataset.table.model_dump(mode="json", exclude_none=True)
    for column in table["columns"]:
        if column["name"] == "condition":
            column["type"] = "int64"
    return table


def test_a_candidate_is_masked_and_leaves_nothing_outside_the_restricted_tier(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = with_reviewer(site)
    register.publish(sites(register.dataset))
    published = site.tree("catalog", "objects", "processed")

    same = compared(register)
    assert (same.good, same.report["identical"]) == (True, True)
    assert site.tree("work") == {SHADOW: same.content_hash}  # masked with the same secret, to the byte

    monkeypatch.setitem(TRANSFORMS, "metric_discharge", moved)
    more = compared(register, transform="metric_discharge")
    assert not more.good
    assert more.report["faults"][:2] == [
        "rows: what they are, or how many, differs by more than is tolerated",
        "cell: differs by more than is tolerated",
    ]
    assert "condition: distinct differs by more than is tolerated" in more.report["faults"]
    # What is published is public: with a difference from it anybody could tell the value it is a difference of.
    assert numbers_in({**more.report, "faults_in_all": None}) == []
    assert "percent" not in json.dumps(more.report)
    reported = {one["column"] for one in more.report["statistics"]}
    assert "condition" in reported
    assert reported.isdisjoint({"cell", "latitude", "longitude"})
    assert read_candidate_status(site.services, register.dataset).largest_differences == []
    assert comparison_record(more).data["statistics"] == "beyond tolerance"
    assert site.tree("work").keys() == {SHADOW}

    assert refused(register, policy=finer(register)) == (
        "heritage/sites@v2-0-0: policy must be 'heritage-sites'; what it shows is changed by a new version of it, "
        "which heritage-review-board decides about, not by a candidate"
    )
    assert refused(register, review="none") == (
        "heritage-sites@v2-0-0.yaml: review must be required, as it is of heritage/sites"
    )

    unfit = compared(register, table=retyped(register))
    assert unfit.report["faults"] == ["schema gate, before masking: condition: expected int64, found string"]
    assert site.tree("work") == {}  # nor is anything left of what the one before it made

    assert site.tree("catalog", "objects", "processed") == published
    text = str([same.report, more.report, unfit.report]) + caplog.text
    for value in ("Synthetic site", "14XX", "38.2", "-97.8", "Archaic", "somebody"):
        assert value not in text
