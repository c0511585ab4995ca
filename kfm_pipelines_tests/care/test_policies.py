"""A missing, invalid or overdue policy publishes nothing."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pydantic import ValidationError

from kfm_pipelines.care.masks import mask_table
from kfm_pipelines.care.policies import Policy, load_policy, mismatches, refuse_if_mismatched, refuse_unless_current
from kfm_pipelines.declarations import Column
from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.declarations.splits import SplitBy
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.care.raster_policy import raster_policy
from kfm_pipelines_tests.fixtures.rasters.invented import raster_dataset

SHIPPED = shipped_path("resources") / "policies"


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    return tmp_path


def write(resources: Path, changes: dict[str, object] | None = None, *, file: str = "not-sensitive") -> None:
    document = yaml.safe_load((SHIPPED / "not-sensitive.yaml").read_text()) | (changes or {})
    (resources / "policies" / f"{file}.yaml").write_text(yaml.safe_dump(document))


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_every_shipped_policy_is_valid(name: str) -> None:
    assert load_policy(shipped_path("resources"), name).policy == name


def test_a_policy_is_named_with_its_version(resources: Path) -> None:
    write(resources, {"version": 3})
    assert load_policy(resources, "not-sensitive").name == "not-sensitive@3"


@pytest.mark.parametrize("name", ["unknown", "", "not-sensitive.yaml"])
def test_a_missing_policy_publishes_nothing(resources: Path, name: str) -> None:
    write(resources)
    with pytest.raises(PolicyRefused, match=f"there is no masking policy '{name}' .* nothing may be published"):
        load_policy(resources, name)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"note": "x"}, "^not-sensitive.yaml: note: Extra inputs are not permitted$"),
        (
            {"sensitivity": "secret"},
            "sensitivity: Input should be 'open', 'generalised', .* or 'undecided', not 'secret'",
        ),
        ({"labels": ["tk:made-up"]}, "labels.0: is not a known label; labels look like care:ethics"),
        ({"class_column": "kind"}, "needs either sensitivity, for all records, or class_column"),
        ({"sensitivity": None}, "needs either sensitivity, for all records, or class_column"),
        ({"sensitivity": "restricted"}, "classes: there are no rules for any class, so nothing may be published"),
        ({"classes": {"open": {"point": {"method": "none"}}}}, "classes: an open policy must have none"),
        (
            {"sensitivity": "undecided", "classes": {"withheld": {"point": {"method": "omit"}}}},
            "classes: an undecided policy must have none",
        ),
        ({"version": 0}, "version: Input should be greater than or equal to 1, not 0"),
        ({"version": "1"}, "version: Input should be a valid integer, not '1'"),
        ({"reason": "  "}, "reason: String should have at least 3 characters"),
        ({"authority": "a b"}, "authority: String should match pattern"),
        ({"reviewed_on": "soon"}, "reviewed_on: Input should be a valid date, not 'soon'"),
        ({"review_every_days": 0}, "review_every_days: Input should be greater than or equal to 1"),
        ({"policy": "a policy"}, "policy: String should match pattern"),
    ],
)
def test_an_invalid_field_is_named(resources: Path, changes: dict[str, object], sentence: str) -> None:
    write(resources, changes)
    with pytest.raises(DeclarationInvalid, match=sentence):
        load_policy(resources, "not-sensitive")


@pytest.mark.parametrize("field", ["policy", "version", "reason", "authority", "reviewed_on", "review_every_days"])
def test_a_missing_field_is_named(resources: Path, field: str) -> None:
    document = yaml.safe_load((SHIPPED / "not-sensitive.yaml").read_text())
    del document[field]
    (resources / "policies" / "not-sensitive.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(DeclarationInvalid, match=f"{field}: Field required"):
        load_policy(resources, "not-sensitive")


def test_a_file_is_named_like_its_policy(resources: Path) -> None:
    write(resources, file="renamed")
    with pytest.raises(DeclarationInvalid, match="policy: must be 'renamed' like its file, not 'not-sensitive'"):
        load_policy(resources, "renamed")


@pytest.mark.parametrize("text", ["", "{}", "---"])
def test_an_empty_policy_publishes_nothing(resources: Path, text: str) -> None:
    (resources / "policies" / "empty.yaml").write_text(text)
    with pytest.raises(PolicyRefused, match=r"^the masking policy 'empty' is empty, so nothing may be published$"):
        load_policy(resources, "empty")


@pytest.mark.parametrize("text", ["policy: [", "- a list", "\x00"])
def test_a_file_that_is_not_a_declaration_is_one_sentence(resources: Path, text: str) -> None:
    (resources / "policies" / "broken.yaml").write_text(text)
    with pytest.raises(DeclarationInvalid, match=r"^broken\.yaml: "):
        load_policy(resources, "broken")


def test_a_policy_is_current_until_the_day_of_its_review(resources: Path) -> None:
    policy = load_policy(shipped_path("resources"), "not-sensitive")
    refuse_unless_current(policy, policy.review_by)
    with pytest.raises(PolicyRefused, match="nothing is published under it"):
        refuse_unless_current(policy, policy.review_by + timedelta(days=1))


def test_a_review_in_the_future_does_not_count() -> None:
    policy = load_policy(shipped_path("resources"), "not-sensitive")
    refuse_unless_current(policy, policy.reviewed_on)
    with pytest.raises(PolicyRefused, match=r"is reviewed only on .* nothing is published yet"):
        refuse_unless_current(policy, policy.reviewed_on - timedelta(days=1))


def test_nothing_is_published_under_an_undecided_policy(resources: Path) -> None:
    """Whatever its dates say, and whatever dataset it is for: there is nothing yet that could suit or contradict."""
    write(resources, {"sensitivity": "undecided"})
    policy = load_policy(resources, "not-sensitive")
    assert (policy.is_open, policy.masks, policy.is_decided) == (False, False, False)
    with pytest.raises(PolicyRefused, match=r"^policy not-sensitive@2 is undecided: nothing is published under it"):
        refuse_unless_current(policy, policy.reviewed_on)
    assert not any(mismatches(policy, dataset) for dataset in load_datasets(shipped_path("resources")).values())
    with pytest.raises(PolicyRefused, match="is undecided, so there is nothing to mask"):
        mask_table(pa.table({}), SITES, policy, b"")


def test_a_digest_changes_with_every_field(resources: Path) -> None:
    write(resources)
    known = load_policy(resources, "not-sensitive")
    assert known.digest == load_policy(shipped_path("resources"), "not-sensitive").digest
    changed = [
        Policy.model_validate(known.model_dump() | changes)
        for changes in ({"version": 9}, {"reason": "another"}, {"review_every_days": 9})
    ]
    assert len({known.digest, *(policy.digest for policy in changed)}) == 4


HERITAGE = load_policy(shipped_path("resources"), "heritage-sites")
SITES = load_datasets(shipped_path("resources"))["heritage/sites"]


def heritage(**changes: Any) -> dict[str, Any]:
    return HERITAGE.model_dump() | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key_id": None}, "key_id: a policy that masks needs one"),
        ({"stable_id": []}, "stable_id: a policy that masks must name the columns that identify a feature"),
        ({"wording": None}, "wording: a policy that masks must name the text"),
        ({"wording": "  "}, "at least 3 characters"),
        ({"minimum_count": 2}, "greater than or equal to 3"),
        ({"columns": {"keep": ["period"], "withhold": ["period"]}}, "'period' cannot be both kept and withheld"),
        ({"classes": {}}, "classes: there are no rules for any class"),
        ({"classes": {"secret": {}}}, "Input should be 'open', 'generalised', 'restricted' or 'withheld'"),
        ({"classes": {"withheld": {}}}, "classes.withheld: has no rule for any kind of geometry"),
        (
            {"classes": {"withheld": {"point": {"method": "generalise", "resolution": 5}}}},
            "classes.withheld.point: method must be one of omit, suppress, not 'generalise'",
        ),
        (
            {"classes": {"restricted": {"point": {"method": "displace", "min_m": 1.0, "max_m": 9.0, "reason": "x"}}}},
            "classes.restricted.point: method must be one of generalise, group, omit, suppress, not 'displace'",
        ),
        (
            {"classes": {"restricted": {"point": {"method": "group", "resolutions": [6]}}}},
            "classes.restricted.point: resolution must be at most 5, not 6",
        ),
        ({"classes": {"generalised": {"point": {"method": "generalise", "resolution": 8}}}}, "less than or equal to 7"),
        ({"classes": {"generalised": {"point": {"method": "blur"}}}}, "'blur' found using 'method' does not match any"),
        (
            {"classes": {"generalised": {"line": {"method": "displace", "min_m": 1.0, "max_m": 9.0, "reason": "x"}}}},
            "'displace' found using 'method' does not match any",
        ),
        (
            {"classes": {"generalised": {"point": {"method": "displace", "min_m": 5.0, "max_m": 9.0, "reason": "x"}}}},
            "max_m must be at least twice min_m",
        ),
        (
            {"classes": {"generalised": {"point": {"method": "displace", "min_m": 5.0, "max_m": 90.0}}}},
            "displace.reason\n  Field required",
        ),
        (
            {"classes": {"restricted": {"point": {"method": "group", "resolutions": [3], "by": ["site_type"]}}}},
            "a group may only use columns that are kept",
        ),
        (
            {"classes": {"restricted": {"point": {"method": "group", "resolutions": [3, 3]}}}},
            "resolutions must differ",
        ),
    ],
)
def test_a_policy_that_reveals_too_much_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Policy.model_validate(heritage(**changes))


def test_the_shipped_policy_suits_its_dataset() -> None:
    refuse_if_mismatched(HERITAGE, SITES)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"keep": ["period"]}, "it does not say whether 'site_id' is kept or withheld"),
        ({"keep": ["longitude"]}, "'longitude' holds a place, so it can be neither kept nor withheld"),
        ({"keep": ["directions"]}, "'directions' holds a place, so it can be neither kept nor withheld"),
        ({"withhold": ["nothing"]}, "'nothing' is not one of the columns"),
        ({"keep": ["site_id"]}, "'site_id' identifies a feature, so it cannot be kept"),
        ({"keep": ["sensitivity"]}, "'sensitivity' is the class, which is always kept; remove it from columns"),
    ],
)
def test_a_policy_must_cover_every_column(columns: dict[str, list[str]], sentence: str) -> None:
    policy = Policy.model_validate(heritage(columns=columns, classes={"withheld": {"point": {"method": "omit"}}}))
    with pytest.raises(PolicyRefused, match=f"^policy heritage-sites@1 does not suit heritage/sites: {sentence}$"):
        refuse_if_mismatched(policy, SITES)


def test_a_masked_dataset_needs_an_extent() -> None:
    with pytest.raises(PolicyRefused, match="the dataset has no extent to hold coordinates against"):
        refuse_if_mismatched(HERITAGE, SITES.model_copy(update={"extent": None}))


@pytest.mark.parametrize("split", [SplitBy(h3_res=3), SplitBy(column="period", members=["Woodland"])])
def test_a_masked_dataset_may_not_name_its_members_in_keys(split: SplitBy) -> None:
    split_sites = SITES.model_copy(update={"key": SITES.key.model_copy(update={"split_by": split})})
    with pytest.raises(PolicyRefused, match=r"key.split_by would put the places of rows into the names of keys"):
        refuse_if_mismatched(HERITAGE, split_sites)


def test_a_nations_data_needs_labels() -> None:
    drought = load_datasets(shipped_path("resources"))["drought/tribal-areas"]
    policy = load_policy(shipped_path("resources"), drought.policy)
    refuse_if_mismatched(policy, drought)
    with pytest.raises(PolicyRefused, match="the data is a nation's, so the policy needs labels"):
        refuse_if_mismatched(policy.model_copy(update={"labels": []}), drought)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"footprints": None}, "footprints: a policy that masks rasters must name the places they must not show"),
        ({"key_id": None}, "key_id: a policy that masks needs one"),
        (
            {
                "classes": {
                    "restricted": {
                        "raster": {"method": "nodata", "resolution": 5},
                        "point": {"method": "suppress"},
                    }
                }
            },
            "classes: a policy that masks rasters has one sensitivity and a rule for rasters alone",
        ),
    ],
)
def test_a_policy_for_rasters_names_what_to_hide(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        raster_policy(**changes)


def test_a_policy_without_a_rule_for_rasters_has_no_footprints(resources: Path) -> None:
    document = yaml.safe_load((SHIPPED / "heritage-sites.yaml").read_text()) | {"footprints": "hidden"}
    with pytest.raises(ValidationError, match="footprints: only a policy with a rule for rasters needs them"):
        Policy.model_validate(document)


def test_a_rule_that_no_processor_runs_is_refused() -> None:
    tables, rasters = load_datasets(shipped_path("resources")), raster_dataset()
    with pytest.raises(PolicyRefused, match="it masks rasters, and the dataset has processor: table"):
        refuse_if_mismatched(raster_policy(), tables["heritage/sites"])
    with pytest.raises(PolicyRefused, match="it masks places in a table, and the dataset has processor: raster"):
        refuse_if_mismatched(load_policy(shipped_path("resources"), "heritage-sites"), rasters)
    refuse_if_mismatched(raster_policy(), rasters)


def test_digests_are_those_from_before_there_were_footprints() -> None:
    digest = load_policy(shipped_path("resources"), "heritage-sites").digest
    assert digest == "1727e64f0fa93490c94d8aff7ce70f13461db89785dc75618cd149ecc4b69cf8"


@pytest.mark.parametrize("owner", [{"name": "owner_name"}, {"name": "keeper", "source": "OWNER_NAME"}])
def test_an_open_policy_may_withhold_columns(owner: dict[str, str]) -> None:
    policy = load_policy(shipped_path("resources"), "parcels")
    parcels = load_datasets(shipped_path("resources"))["land/parcels"]
    refuse_if_mismatched(policy, parcels)
    column = Column.model_validate({"type": "string", "nullable": True, "description": "Who owns it", **owner})
    columns = [*parcels.table.columns, column]
    with_owner = parcels.model_copy(update={"table": parcels.table.model_copy(update={"columns": columns})})
    with pytest.raises(PolicyRefused, match=f"'{owner['name']}' is withheld, so it must not be declared$"):
        refuse_if_mismatched(policy, with_owner)


def test_an_open_policy_lists_no_columns_to_keep(resources: Path) -> None:
    write(resources, {"columns": {"keep": ["period"]}})
    with pytest.raises(DeclarationInvalid, match="an open policy keeps every column that it does not withhold"):
        load_policy(resources, "not-sensitive")
