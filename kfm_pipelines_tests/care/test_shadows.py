"""A candidate for sensitive data: masked like what is published, compared without a word about the data, kept shut."""

from typing import Any

import pytest
import yaml

from kfm_pipelines.operations.canary import CanaryRun
from kfm_pipelines.state.comparisons import Compared
from kfm_pipelines_tests.candidates import change
from kfm_pipelines_tests.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.site import Site

pytestmark = pytest.mark.slow

VERSION = "v2-0-0"
CANARY = {"transform_version": VERSION, "fraction": 1.0, "keys": 1}
SHADOW = f"work/restricted/shadow/heritage-sites/{KEY}/{VERSION}.parquet"


def compared(register: Register, **changes: Any) -> Compared:
    """The candidate is the declaration of now under another version, with these changes."""
    resources = register.site.workshop.settings.resources
    declared = resources / "datasets/heritage-sites.yaml"
    change(declared, canary=CANARY)
    register.site.workshop.__dict__.pop("datasets", None)
    document = yaml.safe_load(declared.read_text())
    del document["canary"]
    document["key"]["transform_version"] = VERSION
    (resources / f"candidates/heritage-sites@{VERSION}.yaml").write_text(yaml.safe_dump(document | changes))
    run = CanaryRun(register.site.workshop, register.dataset, "a run")
    [found] = run.compare([KEY])
    assert (run.skipped, run.failed) == ({}, {})
    return found


def finer(register: Register) -> str:
    """A policy that shows more than the one in force."""
    policies = register.site.workshop.settings.resources / "policies"
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
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    register = with_reviewer(site)
    register.publish(sites(register.dataset))
    published = site.tree("catalog", "objects", "processed")

    same = compared(register)
    assert (same.good, same.report["identical"]) == (True, True)
    assert site.tree("work") == {SHADOW: same.content_hash}  # masked with the same secret, to the byte

    more = compared(register, policy=finer(register))
    assert not more.good
    assert any(fault.startswith("cell: distinct differs by") for fault in more.report["faults"])
    assert site.tree("work").keys() == {SHADOW}

    unfit = compared(register, table=retyped(register))
    assert unfit.report["faults"] == ["schema gate, before masking: condition: expected int64, found string"]
    assert site.tree("work") == {}  # nor is anything left of what the one before it made

    assert site.tree("catalog", "objects", "processed") == published
    said = str([same.report, more.report, unfit.report]) + caplog.text
    for value in ("Synthetic site", "14XX", "38.2", "-97.8", "Archaic", "somebody"):
        assert value not in said
