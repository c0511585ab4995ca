"""Breaks policy, authority, secret and exemptions of a dataset: the doctor names each, and who has to act."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.doctor import DoctorFinding, diagnose
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.state import database
from kfm_pipelines_tests.fixtures.care.register import Register, with_reviewer
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.sites.site import Site, create_database, opened_site

pytestmark = pytest.mark.slow

HERITAGE = "heritage/sites"
REVIEW_BY = date(2027, 6, 1)


@pytest.fixture
def register(site: Site) -> Register:
    """A site of its own, for tests that write to the database."""
    return with_reviewer(site)


@pytest.fixture(scope="module")
def shared(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Register]:
    root = tmp_path_factory.mktemp("care") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        yield with_reviewer(opened)


@pytest.fixture
def unused(shared: Register, tmp_path: Path) -> Iterator[Register]:
    """The shared site with its own resource files, which are restored after the test."""
    resources = shared.site.root / "resources"
    shutil.copytree(resources, tmp_path / "kept")
    yield shared
    shutil.rmtree(resources)
    shutil.copytree(tmp_path / "kept", resources)


def newcomer(settings: Settings, today: date | None = None) -> Services:
    """Services that have read nothing yet, as in every `kfm doctor`."""
    services = Services(settings)
    return replace(services, today=lambda: today) if today else services


def findings(register: Register, today: date | None = None, **environ: str) -> dict[str, DoctorFinding]:
    """Findings by check; no problem is reported twice."""
    services = newcomer(load_settings({**register.site.environment, **environ}), today)
    try:
        found = diagnose(services)
    finally:
        services.close()
    assert len(wrong({finding.check: finding for finding in found})) == sum(not finding.ok for finding in found)
    for finding in found:
        assert "\n" not in finding.found + finding.remedy
        assert finding.ok or finding.remedy
    return {finding.check: finding for finding in found}


def wrong(found: dict[str, DoctorFinding]) -> dict[str, str]:
    return {check: finding.found for check, finding in found.items() if not finding.ok}


def changed(register: Register, file: str, **changes: Any) -> None:
    change(register.site.root / "resources" / file, **changes)


def changed_policy(register: Register, **changes: Any) -> None:
    changed(register, "policies/heritage-sites.yaml", **changes)


def changed_keys(register: Register, **changes: Any) -> None:
    path = "authorities/heritage-review-board.yaml"
    [key] = yaml.safe_load((register.site.root / "resources" / path).read_text())["keys"]
    changed(register, path, keys=[key | changes])


def test_a_healthy_site_has_findings_for_every_dataset(unused: Register) -> None:
    found = findings(unused)
    assert wrong(found) == {}
    assert found["declarations"].found == ", ".join(unused.site.services.datasets)
    assert found["policy of heritage/sites"].found.startswith("heritage-sites@1, to be reviewed by 2027-06-01")
    others = ("rules for", "authority over", "secret for")
    assert {check: found[check].found for check in (f"{other} {HERITAGE}" for other in others)} == {
        "rules for heritage/sites": "they cover every column",
        "authority over heritage/sites": "Heritage review board, 1 of 1 keys are valid today",
        "secret for heritage/sites": "key heritage-2026, not used yet",
    }
    assert found["rules for usgs/streamflow"].found == "nothing is masked"
    assert "secret for usgs/streamflow" not in found


def test_a_diagnosis_records_nothing(unused: Register) -> None:
    """A policy that was only checked has not been used, and its secret can still change."""
    findings(unused)
    assert unused.site.fetch("SELECT * FROM kfm.policy_versions") == []
    assert unused.site.fetch("SELECT * FROM kfm.audit") == []


def without_policy(register: Register) -> None:
    (register.site.root / "resources/policies/heritage-sites.yaml").unlink()


def without_authority(register: Register) -> None:
    (register.site.root / "resources/authorities/heritage-review-board.yaml").unlink()


BROKEN: dict[str, tuple[Callable[[Register], object], str, str, str]] = {
    "no policy": (without_policy, "policy of heritage/sites", "there is no masking policy", "fix this"),
    "a policy that makes no sense": (
        lambda r: changed_policy(r, minimum_count=1),
        "policy of heritage/sites",
        "heritage-sites.yaml: minimum_count: ",
        "fix this",
    ),
    "review overdue": (
        lambda r: changed_policy(r, reviewed_on=date(2024, 1, 1)),
        "policy of heritage/sites",
        "heritage-sites@1, to be reviewed by 2024-12-31",
        "have heritage-review-board review it",
    ),
    "review in the future": (
        lambda r: changed_policy(r, reviewed_on=date(2099, 1, 1)),
        "policy of heritage/sites",
        "heritage-sites@1, reviewed only on 2099-01-01",
        "correct reviewed_on",
    ),
    "nobody has decided": (
        lambda r: changed_policy(r, class_column=None, classes={}, sensitivity="undecided"),
        "policy of heritage/sites",
        "heritage-sites@1, undecided",
        "have heritage-review-board decide its sensitivity",
    ),
    "silent about a column": (
        lambda r: changed_policy(r, columns={"keep": ["period"]}),
        "rules for heritage/sites",
        "does not suit heritage/sites: it does not say whether 'site_id' is kept or withheld",
        "fix this",
    ),
    "authority that nobody declared": (
        without_authority,
        "authority over heritage/sites",
        "'heritage-review-board' is not declared",
        "resources/authorities/heritage-review-board.yaml",
    ),
    "no key to review with": (
        lambda r: changed(r, "authorities/heritage-review-board.yaml", keys=[]),
        "authority over heritage/sites",
        "Heritage review board, 0 of 0 keys are valid today",
        "kfm review keygen heritage-review-board",
    ),
    "a key that ran out": (
        lambda r: changed_keys(r, valid_until=date(2026, 1, 2), valid_from=date(2026, 1, 1)),
        "authority over heritage/sites",
        "Heritage review board, 0 of 1 keys are valid today",
        "kfm review keygen heritage-review-board",
    ),
    "a key that does not count yet": (
        lambda r: changed_keys(r, valid_until=date(2099, 1, 2), valid_from=date(2099, 1, 1)),
        "authority over heritage/sites",
        "Heritage review board, 0 of 1 keys are valid today",
        "kfm review keygen heritage-review-board",
    ),
    "a secret nobody has given": (
        lambda r: changed_policy(r, key_id="heritage-2027"),
        "secret for heritage/sites",
        "the secret of key heritage-2027 is not there: set KFM_CARE_KEY_HERITAGE_2027",
        "fix this",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_problem_is_reported_once_and_only_for_its_dataset(unused: Register, case: str) -> None:
    breaks, check, message, remedy = BROKEN[case]
    breaks(unused)
    found = findings(unused)
    assert list(wrong(found)) == [check]
    assert message in found[check].found
    assert remedy in found[check].remedy
    # --fix cannot correct it, and the remedy does not claim so.
    assert "--fix" not in found[check].remedy
    assert set_up(unused.site.services, cloud=True) == []


def test_no_key_is_needed_without_review(unused: Register) -> None:
    changed(unused, "authorities/heritage-review-board.yaml", keys=[])
    changed(unused, "datasets/heritage-sites.yaml", review="none")
    assert wrong(findings(unused)) == {}


@pytest.mark.parametrize("secret", ["", "short and known"])
def test_a_missing_or_short_secret_is_found_and_not_printed(unused: Register, secret: str) -> None:
    found = findings(unused, KFM_CARE_KEY_HERITAGE_2026=secret)
    assert list(wrong(found)) == ["secret for heritage/sites"]
    assert "short and known" not in str(found)


def test_a_changed_secret_and_a_changed_policy_are_distinguished(register: Register) -> None:
    governance_of(register.site.services, register.dataset)
    found = findings(register)
    assert found["secret for heritage/sites"].found == "key heritage-2026, used before"

    other = findings(register, KFM_CARE_KEY_HERITAGE_2026="another secret that is also long enough")
    assert wrong(other) == {
        "secret for heritage/sites": "the secret of key heritage-2026 is not the one it was;"
        " a new secret is a new key_id and policy version"
    }
    changed_policy(register, minimum_count=3)
    assert wrong(findings(register)) == {
        "rules for heritage/sites": "policy heritage-sites@1 is not what it was when it was first used;"
        " give it a new version"
    }


def test_a_review_is_announced_before_it_is_overdue(unused: Register) -> None:
    expected = "heritage-sites@1, to be reviewed by 2027-06-01"
    for days, ok, note in (
        (31, True, ""),
        (30, True, ": soon, in 30 days"),
        (1, True, ": soon, tomorrow"),
        (0, True, ": soon, today"),
        (-1, False, ""),
    ):
        found = findings(unused, today=REVIEW_BY - timedelta(days=days))["policy of heritage/sites"]
        assert (found.ok, found.found) == (ok, expected + note)


def exempted(register: Register, days: int, keys: str = "") -> str:
    services = register.site.services
    until = services.today() + timedelta(days=days)
    return exempt.grant_exemption(services, HERITAGE, keys, until, register.private_key, "for the court").id


def after(register: Register, days: int) -> date:
    return register.site.services.today() + timedelta(days=days)


def test_an_exemption_is_announced_before_it_expires_and_wrong_afterwards(register: Register) -> None:
    given, until = exempted(register, days=20), after(register, 20)
    check = f"exemption {given} of heritage/sites"
    found = [findings(register, today=after(register, days))[check] for days in (12, 13, 20, 21)]
    assert [(one.ok, one.found) for one in found] == [
        (True, f"unmasked until {until}"),
        (True, f"unmasked until {until}: soon, in 7 days"),
        (True, f"unmasked until {until}: soon, today"),
        (False, f"exemption {given} from policy heritage-sites@1 ran out on {until}; renew or end it"),
    ]
    assert "`kfm review exempt`" in found[-1].remedy
    assert "`kfm review end`" in found[-1].remedy


def test_ended_and_renewed_exemptions_are_not_checked(register: Register) -> None:
    first = exempted(register, days=1, keys="heritage-sites:kansas_statewide:5:2026")
    second = exempted(register, days=50)
    found = findings(register, today=after(register, 10))
    assert wrong(found) == {}
    assert f"exemption {first} of heritage/sites" not in found
    assert f"exemption {second} of heritage/sites" in found

    for one in (first, second):
        exempt.end_exemption(register.site.services, one, register.private_key, "it is over")
    found = findings(register, today=after(register, 60))
    assert [check for check in found if check.startswith("exemption ")] == []


def test_a_newer_exemption_of_fewer_keys_does_not_replace_an_older_one(register: Register) -> None:
    whole = exempted(register, days=1)
    exempted(register, days=50, keys="heritage-sites:kansas_statewide:5:2026")
    assert list(wrong(findings(register, today=after(register, 10)))) == [f"exemption {whole} of heritage/sites"]


def test_an_exemption_of_another_version_is_found(register: Register) -> None:
    given = exempted(register, days=50)
    changed_policy(register, version=2)
    assert wrong(findings(register)) == {
        f"exemption {given} of heritage/sites": (
            f"exemption {given} is from policy heritage-sites@1, not heritage-sites@2; renew or end it"
        )
    }


def test_an_exemption_that_was_changed_in_the_database_is_found(register: Register) -> None:
    given = exempted(register, days=1)
    register.site.services.database.execute("ALTER TABLE kfm.exemptions DISABLE TRIGGER append_only")
    register.site.services.database.execute("UPDATE kfm.exemptions SET until = '2099-01-01'")
    assert wrong(findings(register)) == {
        f"exemption {given} of heritage/sites": f"exemption {given} is not what was signed"
    }


@pytest.fixture
def bare_database(unused: Register) -> str:
    return create_database(unused.site.environment["KFM_POSTGRES_URL"], f"{unused.site.bucket}b", "template1")


def test_a_missing_schema_is_one_finding(unused: Register, bare_database: str) -> None:
    assert list(wrong(findings(unused, KFM_POSTGRES_URL=bare_database))) == ["schema"]


@pytest.mark.slow
def test_an_unreachable_database_does_not_hide_other_findings(
    unused: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CONNECTION_SECONDS", 0.2)
    changed_policy(unused, columns={"keep": ["period"]})
    found = wrong(findings(unused, KFM_POSTGRES_URL="postgresql://nobody@127.0.0.1:9/none"))
    assert list(found) == ["Postgres", "rules for heritage/sites"]


def test_an_unreadable_authority_does_not_hide_other_findings(unused: Register) -> None:
    path: Path = unused.site.root / "resources/authorities/heritage-review-board.yaml"
    path.write_text("authority: [")
    found = findings(unused)
    assert all(check.startswith("authority over ") for check in wrong(found))
    assert found["secret for heritage/sites"].ok
