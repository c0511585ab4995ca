"""Policies: one reviewed file each; what is absent, wrong or overdue publishes nothing."""

from pathlib import Path

import pytest
import yaml

from kfm_pipelines.care.policies import Policy, load_policy, refuse_if_unfit
from kfm_pipelines.errors import DeclarationInvalid, PolicyRefused
from kfm_pipelines.settings import shipped

SHIPPED = shipped("resources") / "policies"


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    return tmp_path


def write(resources: Path, changes: dict[str, object] | None = None, *, file: str = "not-sensitive") -> None:
    document = yaml.safe_load((SHIPPED / "not-sensitive.yaml").read_text()) | (changes or {})
    (resources / "policies" / f"{file}.yaml").write_text(yaml.safe_dump(document))


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_every_shipped_policy_is_valid(name: str) -> None:
    assert load_policy(shipped("resources"), name).policy == name


def test_a_policy_is_named_with_its_version(resources: Path) -> None:
    write(resources, {"version": 3})
    assert load_policy(resources, "not-sensitive").name == "not-sensitive@3"


@pytest.mark.parametrize("name", ["unknown", "", "not-sensitive.yaml"])
def test_a_policy_nobody_wrote_publishes_nothing(resources: Path, name: str) -> None:
    write(resources)
    with pytest.raises(PolicyRefused, match=f"there is no masking policy '{name}' .* nothing may be published"):
        load_policy(resources, name)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"note": "x"}, "^not-sensitive.yaml: note: Extra inputs are not permitted$"),
        ({"method": "blur"}, "method: Input should be 'none', not 'blur'"),
        ({"sensitivity": "secret"}, "sensitivity: Input should be 'open', not 'secret'"),
        ({"version": 0}, "version: Input should be greater than or equal to 1, not 0"),
        ({"version": "1"}, "version: Input should be a valid integer, not '1'"),
        ({"reason": "  "}, "reason: String should have at least 3 characters"),
        ({"authority": ""}, "authority: String should have at least 3 characters"),
        ({"review_by": "soon"}, "review_by: Input should be a valid date, not 'soon'"),
        ({"policy": "a policy"}, "policy: String should match pattern"),
    ],
)
def test_a_field_that_makes_no_sense_is_named(resources: Path, changes: dict[str, object], sentence: str) -> None:
    write(resources, changes)
    with pytest.raises(DeclarationInvalid, match=sentence):
        load_policy(resources, "not-sensitive")


@pytest.mark.parametrize("field", ["policy", "version", "sensitivity", "method", "reason", "authority", "review_by"])
def test_no_field_may_be_left_out(resources: Path, field: str) -> None:
    document = yaml.safe_load((SHIPPED / "not-sensitive.yaml").read_text())
    del document[field]
    (resources / "policies" / "not-sensitive.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(DeclarationInvalid, match=f"{field}: Field required"):
        load_policy(resources, "not-sensitive")


def test_a_review_lies_ahead_of_the_last_one(resources: Path) -> None:
    shipped_policy = load_policy(shipped("resources"), "not-sensitive")
    write(resources, {"review_by": shipped_policy.reviewed_on})
    with pytest.raises(DeclarationInvalid, match="review_by must be after reviewed_on"):
        load_policy(resources, "not-sensitive")


def test_a_file_is_named_like_its_policy(resources: Path) -> None:
    write(resources, file="renamed")
    with pytest.raises(DeclarationInvalid, match="policy: must be 'renamed' like its file, not 'not-sensitive'"):
        load_policy(resources, "renamed")


@pytest.mark.parametrize("text", ["", "policy: [", "- a list", "\x00"])
def test_a_file_that_is_no_declaration_is_one_sentence(resources: Path, text: str) -> None:
    (resources / "policies" / "broken.yaml").write_text(text)
    with pytest.raises(DeclarationInvalid, match=r"^broken\.yaml: "):
        load_policy(resources, "broken")


def test_the_day_of_the_review_is_the_last_good_one(resources: Path) -> None:
    policy = load_policy(shipped("resources"), "not-sensitive")
    refuse_if_unfit(policy, policy.review_by)
    with pytest.raises(PolicyRefused, match="nothing is published under it"):
        refuse_if_unfit(policy, policy.review_by.replace(year=policy.review_by.year + 1))


def test_a_digest_changes_with_every_field(resources: Path) -> None:
    write(resources)
    known = load_policy(resources, "not-sensitive")
    assert known.digest == load_policy(shipped("resources"), "not-sensitive").digest
    changed = [
        Policy.model_validate(known.model_dump() | changes)
        for changes in ({"version": 2}, {"reason": "another"}, {"review_by": known.review_by.replace(year=2099)})
    ]
    assert len({known.digest, *(policy.digest for policy in changed)}) == 4
