"""On a local machine, secrets and reviewers' keys are created once, private to their owner, and stay the same."""

import multiprocessing
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.care.governance import load_authorities
from kfm_pipelines.care.secrets import read_secret
from kfm_pipelines.care.signatures import SignedStatement, read_private_key, sign
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.local.keys import care_environment
from kfm_pipelines.settings import load_settings, shipped_path
from kfm_pipelines_tests.fixtures.declarations import change, resources_in

VARIABLE = "KFM_CARE_KEY_HERITAGE_2026"
BOARD = "heritage-review-board"
NEEDED = {"KFM_POSTGRES_URL": "postgresql://kfm@localhost/kfm"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


def reviewer_key(home: Path, authority: str) -> Path:
    return home / "care" / "reviewers" / f"{authority}.pem"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> set[tuple[str, int]]:
    return {("folder" if path.is_dir() else "file", mode(path)) for path in (folder, *folder.rglob("*"))}


def statement(home: Path) -> SignedStatement:
    return sign({"statement": "review"}, read_private_key(reviewer_key(home, BOARD)))


def holder(signed: SignedStatement, authorities: Path) -> str:
    board = load_authorities(shipped_path("resources"), authorities)[BOARD]
    return board.holder_of(signed, board.keys[-1].valid_from)


def test_secrets_and_keys_are_private_to_their_owner(home: Path) -> None:
    found = care_environment(home, {})

    assert found.keys() == {VARIABLE, "KFM_AUTHORITIES"}
    assert read_secret(load_settings(NEEDED | found), "heritage-2026") == found[VARIABLE].encode()
    authorities = Path(found["KFM_AUTHORITIES"])
    assert {path.stem for path in authorities.iterdir()} == set(load_authorities(shipped_path("resources")))
    assert holder(statement(home), authorities) == "Reviewer on this machine"
    assert modes(home / "care") == {("folder", 0o700), ("file", 0o600)}


def test_a_second_call_finds_the_same(home: Path) -> None:
    first = care_environment(home, {})
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert care_environment(home, {}) == first
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_two_homes_have_different_secrets_and_keys(tmp_path: Path) -> None:
    one, other = (care_environment(tmp_path / name, {}) for name in ("one", "other"))
    assert one[VARIABLE] != other[VARIABLE]
    keys = [reviewer_key(tmp_path / name, BOARD).read_bytes() for name in ("one", "other")]
    assert keys[0] != keys[1]


def test_configured_values_win_and_nothing_is_created(home: Path, tmp_path: Path) -> None:
    found = care_environment(home, {VARIABLE: "given", "KFM_AUTHORITIES": str(tmp_path)})
    assert found == {}
    assert {path.name for path in (home / "care").iterdir()} == {"lock"}


@pytest.mark.parametrize(("place", "created"), [("aws:", False), ("aws:kfm/care/", False), ("environment", True)])
def test_secrets_are_created_unless_they_are_in_aws(home: Path, place: str, created: bool) -> None:
    assert (VARIABLE in care_environment(home, {"KFM_CARE_SECRETS": place})) is created
    assert bool(list((home / "care").glob("*.secret"))) is created


def _create_keys(home: Path, barrier: Any, answers: Any) -> None:
    barrier.wait()
    answers.put((care_environment(home, {}), reviewer_key(home, BOARD).read_bytes()))


@pytest.mark.slow
def test_concurrent_processes_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        home, barrier, answers = tmp_path / str(attempt), context.Barrier(4), context.Queue()
        processes = [context.Process(target=_create_keys, args=(home, barrier, answers)) for _ in range(4)]
        for process in processes:
            process.start()
        found = [answers.get(timeout=30) for _ in processes]
        for process in processes:
            process.join(30)
        assert all(one == found[0] for one in found)
        assert len(found[0][0][VARIABLE]) == 64
        assert holder(statement(home), Path(found[0][0]["KFM_AUTHORITIES"])) == "Reviewer on this machine"


@pytest.mark.parametrize("text", ["policy: [", "", "policy: broken\nversion: none\n", "- a list\n"])
def test_a_broken_policy_does_not_stop_the_others(home: Path, resources: Path, text: str) -> None:
    (resources / "policies" / "broken.yaml").write_text(text)
    assert VARIABLE in care_environment(home, {"KFM_RESOURCES": str(resources)})


def test_a_broken_authority_does_not_stop_the_secrets(home: Path, resources: Path) -> None:
    (resources / "authorities" / "broken.yaml").write_text("authority: [")
    found = care_environment(home, {"KFM_RESOURCES": str(resources)})
    assert found.keys() == {VARIABLE, "KFM_AUTHORITIES"}


def test_a_new_policy_and_a_new_authority_get_a_secret_and_a_key(home: Path, resources: Path) -> None:
    first = care_environment(home, {"KFM_RESOURCES": str(resources)})
    change(resources / "policies/heritage-sites.yaml", version=2, key_id="heritage-2027")
    shutil.copyfile(resources / f"authorities/{BOARD}.yaml", resources / "authorities/council.yaml")
    change(resources / "authorities/council.yaml", authority="council")

    second = care_environment(home, {"KFM_RESOURCES": str(resources)})
    assert second["KFM_CARE_KEY_HERITAGE_2027"] != first[VARIABLE]
    assert reviewer_key(home, "council").is_file()
    assert len(load_authorities(resources, Path(second["KFM_AUTHORITIES"]))["council"].keys) == 1


def test_the_keys_of_a_removed_authority_are_removed(home: Path, resources: Path) -> None:
    """Keys of an authority that the reviewed files do not name would make all of them be refused."""
    care_environment(home, {"KFM_RESOURCES": str(resources)})
    (resources / "authorities/tribal-nations.yaml").unlink()
    found = care_environment(home, {"KFM_RESOURCES": str(resources)})
    assert BOARD in load_authorities(resources, Path(found["KFM_AUTHORITIES"]))


def test_permissions_are_corrected(home: Path) -> None:
    first = care_environment(home, {})
    for path in (home / "care", *(home / "care").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    assert care_environment(home, {}) == first
    care = home / "care"
    assert {mode(path) for path in (care, care / "reviewers", care / "authorities")} == {0o700}
    assert {mode(path) for path in (*care.glob("*.secret"), *care.glob("reviewers/*.pem"))} == {0o600}
    statement(home)


def test_a_lost_private_key_is_replaced_and_its_signatures_stay_valid(home: Path) -> None:
    authorities = Path(care_environment(home, {})["KFM_AUTHORITIES"])
    before = statement(home)
    reviewer_key(home, BOARD).unlink()

    care_environment(home, {})
    assert statement(home).key_id != before.key_id
    for signed in (before, statement(home)):
        assert holder(signed, authorities) == "Reviewer on this machine"


def test_a_lost_public_key_is_restored(home: Path) -> None:
    authorities = Path(care_environment(home, {})["KFM_AUTHORITIES"])
    before = statement(home)
    (authorities / f"{BOARD}.yaml").unlink()
    care_environment(home, {})
    assert statement(home).key_id == before.key_id
    assert holder(before, authorities) == "Reviewer on this machine"


def test_unfinished_files_of_a_crash_are_replaced(home: Path) -> None:
    for name in ("heritage-2026.unfinished", f"reviewers/{BOARD}.unfinished", f"authorities/{BOARD}.unfinished"):
        (home / "care" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "care" / name).write_text("half a")
    found = care_environment(home, {})
    assert len(found[VARIABLE]) == 64
    assert holder(statement(home), Path(found["KFM_AUTHORITIES"])) == "Reviewer on this machine"


def test_an_unusable_home_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "care").write_text("a file")
    with pytest.raises(SettingsInvalid, match=rf"^{tmp_path}/care cannot be used: File exists$"):
        care_environment(tmp_path, {})


def test_permissions_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    for umask in (0o000, 0o077):
        before = os.umask(umask)
        try:
            home = tmp_path / oct(umask)
            care_environment(home, {})
        finally:
            os.umask(before)
        assert modes(home / "care") == {("folder", 0o700), ("file", 0o600)}
