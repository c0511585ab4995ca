"""`kfm review` as a reviewer types it; every mistake is one sentence and an exit code."""

import os
import stat
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
import yaml

from kfm_pipelines.care.governance import Authority
from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow

HERITAGE = "heritage/sites"
NONE_PENDING = f"kfm: {KEY}: no release of this key awaits review\n"


@pytest.fixture
def register(site: Site) -> Register:
    return with_reviewer(site)


@pytest.fixture(scope="module")
def empty(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Register]:
    """Without releases, for tests that change nothing."""
    root = tmp_path_factory.mktemp("empty") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        yield with_reviewer(site)


@pytest.fixture(scope="module")
def staged(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Register]:
    """With a release that awaits review, for tests that decide nothing."""
    root = tmp_path_factory.mktemp("staged") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        yield stage(with_reviewer(site))


def stage(register: Register) -> Register:
    register.put(sites(register.dataset))
    register.site.work()
    return register


def review(register: Register, *arguments: str) -> CommandResult:
    return kfm(register.site.environment, "review", *arguments)


def signed(register: Register, command: str, *arguments: str, key: Path | None = None) -> CommandResult:
    """Runs a command that takes a key and a reason."""
    return review(
        register, command, *arguments, "--key", str(key or register.private_key), "--reason", "as agreed [on: paper]"
    )


def refused(result: CommandResult, sentence: str) -> None:
    assert (result.code, result.out, result.err) == (1, "", f"kfm: {sentence}\n")


def misused(result: CommandResult, message: str) -> None:
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def days_from_now(days: int) -> str:
    return (datetime.now(UTC).date() + timedelta(days=days)).isoformat()


def test_without_pending_releases_the_list_is_empty_and_nothing_can_be_decided(empty: Register) -> None:
    assert review(empty, "list").out == "0 releases await review\n"
    assert review(empty, "list", "--json").json == {"waiting": []}
    for result in (
        review(empty, "show", KEY),
        signed(empty, "approve", KEY, "--digest", "0" * 64),
        signed(empty, "reject", KEY, "--digest", "0" * 64),
    ):
        assert (result.code, result.out, result.err) == (1, "", NONE_PENDING)
    refused(review(empty, "show", "a\x1b[2J\nb"), "a [2J b: no release of this key awaits review")


def test_pending_releases_are_listed(staged: Register) -> None:
    [one] = review(staged, "list", "--json").json["waiting"]
    release = staged.waiting()
    assert one["release"] == release.release_digest
    assert datetime.fromisoformat(one["since"]) == release.since
    assert {name: one[name] for name in ("key", "dataset", "revision", "policy", "authority")} == {
        "key": KEY,
        "dataset": HERITAGE,
        "revision": 1,
        "policy": "heritage-sites@1",
        "authority": "heritage-review-board",
    }
    table = review(staged, "list").out
    assert KEY in table
    assert release.release_digest[:16] in table
    assert "1 release awaits review; look at one with `kfm review show KEY`" in table
    assert review(staged, "list", "--dataset", "usgs/streamflow", "--json").json == {"waiting": []}


def test_only_the_owner_can_read_the_page(staged: Register, tmp_path: Path) -> None:
    digest, home = staged.waiting().release_digest, staged.site.root
    name = f"{KEY.replace(':', '_')}.html"

    public = review(staged, "show", KEY, "--json").json
    assert public == {"key": KEY, "release": digest, "page": str(home / "review" / name), "restricted": False}
    restricted = review(staged, "show", KEY, "--key", str(staged.private_key), "--json").json
    assert restricted == {"key": KEY, "release": digest, "page": str(home / "restricted" / name), "restricted": True}
    elsewhere = tmp_path / "not/yet/there/page.html"
    result = review(staged, "show", KEY, "--out", str(elsewhere))

    assert f"Release      {digest}\n" in result.out
    assert f"kfm review approve {KEY} --digest {digest[:16]} --key FILE --reason TEXT\n" in result.out
    for page in (Path(public["page"]), Path(restricted["page"]), elsewhere):
        assert mode(page) == 0o600
        assert mode(page.parent) == 0o700
        assert digest in page.read_text()
    counts = [Path(one["page"]).read_text().count("data:image/png;base64") for one in (public, restricted)]
    assert counts == [1, 2]


def test_an_existing_page_is_closed_to_others(staged: Register, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("an older page")
    page.chmod(0o644)
    review(staged, "show", KEY, "--key", str(staged.private_key), "--out", str(page))
    assert mode(page) == 0o600
    assert "an older page" not in page.read_text()


def test_a_page_that_cannot_be_written_is_one_sentence(staged: Register, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "page.html"
    refused(review(staged, "show", KEY, "--out", str(out)), f"the page cannot be written: {out.parent}: File exists")
    misused(review(staged, "show", KEY, "--out", str(tmp_path)), "is a directory")


def restricted_pages(register: Register) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in (register.site.root / "restricted").glob("*")}


def invalid_keys(register: Register) -> dict[Path, str]:
    folder = register.site.root / "keys"
    stranger, open_to_all, rubbish = (folder / name for name in ("stranger.pem", "open.pem", "rubbish.pem"))
    create_private_key(stranger)
    open_to_all.write_bytes(register.private_key.read_bytes())
    open_to_all.chmod(0o644)
    rubbish.touch(mode=0o600)
    return {
        stranger: "does not belong to heritage-review-board",
        open_to_all: "open.pem can be read by others; run chmod 600 first",
        rubbish: "rubbish.pem holds no private key",
        folder / "missing.pem": "missing.pem cannot be read: No such file or directory",
    }


def test_without_a_valid_key_nothing_is_decided_or_displayed(staged: Register) -> None:
    digest, before = staged.waiting().release_digest, restricted_pages(staged)
    for key, message in invalid_keys(staged).items():
        for result in (
            signed(staged, "approve", KEY, "--digest", digest, key=key),
            signed(staged, "reject", KEY, "--digest", digest, key=key),
            signed(staged, "exempt", HERITAGE, "--until", days_from_now(1), key=key),
            review(staged, "show", KEY, "--key", str(key)),
        ):
            assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
            assert message in result.err
    assert restricted_pages(staged) == before
    assert staged.site.fetch("SELECT 1 FROM kfm.review_decisions UNION ALL SELECT 1 FROM kfm.exemptions") == []
    assert staged.waiting().release_digest == digest


def test_another_digest_decides_nothing(staged: Register) -> None:
    release = staged.waiting().release_digest
    for command, digest in product(("approve", "reject"), ("0" * 64, "short", "")):
        result = signed(staged, command, KEY, "--digest", digest)
        refused(result, f"{KEY}: release {release[:16]}… awaits review, not {digest[:16]!r}; look at it first")
        assert staged.waiting().release_digest == release
    assert staged.site.fetch("SELECT * FROM kfm.review_decisions") == []


def test_a_decision_needs_a_key_a_digest_and_a_reason(staged: Register) -> None:
    key, digest = ("--key", str(staged.private_key)), ("--digest", staged.waiting().release_digest)
    misused(review(staged, "approve", KEY, *digest, "--reason", "yes"), "Missing option '--key'")
    misused(review(staged, "approve", KEY, *key, "--reason", "yes"), "Missing option '--digest'")
    misused(review(staged, "approve", KEY, *key, *digest), "Missing option '--reason'")
    misused(review(staged, "reject", KEY, *key, *digest, "--reason", " \t"), "'--reason': it is empty")
    assert staged.site.fetch("SELECT * FROM kfm.review_decisions") == []


def test_an_approved_release_is_published_and_cannot_be_approved_twice(register: Register) -> None:
    stage(register)
    digest = register.waiting().release_digest
    page = Path(review(register, "show", KEY, "--key", str(register.private_key), "--json").json["page"])

    result = signed(register, "approve", KEY, "--digest", digest[:12].upper())
    assert result.out.startswith(f"approved: {KEY}, release {digest[:16]}…; the next run")
    assert not page.exists()
    again = signed(register, "approve", KEY, "--digest", digest)
    assert (again.code, again.out, again.err) == (1, "", NONE_PENDING)
    assert register.site.work()["published"] == 1
    [decision] = register.site.fetch("SELECT decision, statement ->> 'reason' AS reason FROM kfm.review_decisions")
    assert decision == {"decision": "approved", "reason": "as agreed [on: paper]"}


def test_a_rejected_release_cannot_be_approved(register: Register) -> None:
    stage(register)
    digest = register.waiting().release_digest
    page = Path(review(register, "show", KEY, "--key", str(register.private_key), "--json").json["page"])

    result = signed(register, "reject", KEY, "--digest", digest, "--json").json
    assert result == {"decision": "rejected", "key": KEY, "release": digest}
    assert not page.exists()
    then = signed(register, "approve", KEY, "--digest", digest, "--json")
    assert (then.code, then.out, then.err) == (1, "", NONE_PENDING)
    [letter] = kfm(register.site.environment, "dlq", "list", "--json").json["letters"]
    assert letter["reason"] == f"{KEY}: refused by A reviewer of the tests: as agreed [on: paper]"


def test_an_exemption_is_granted_listed_and_ended_once(register: Register) -> None:
    until = days_from_now(366)
    given = signed(register, "exempt", HERITAGE, "--until", until, "--keys", "heritage-sites:", "--json").json
    line = {
        "id": given["id"],
        "dataset": HERITAGE,
        "policy": "heritage-sites@1",
        "keys": "heritage-sites:",
        "until": until,
        "state": "counts",
        "by": "A reviewer of the tests",
        "reason": "as agreed [on: paper]",
    }
    assert given == line
    assert review(register, "exemptions", "--json").json == {"exemptions": [line]}
    assert review(register, "exemptions", "--dataset", "usgs/streamflow", "--json").json == {"exemptions": []}

    result = signed(register, "end", given["id"])
    assert result.out == f"{given['id']} has ended; heritage/sites is masked under heritage-sites@1 again\n"
    refused(signed(register, "end", given["id"]), f"exemption {given['id']} has already ended")
    assert review(register, "exemptions", "--json").json == {"exemptions": [line | {"state": "ended"}]}
    table = review(register, "exemptions").out
    assert "as agreed [on: paper]" in table
    assert "1 exemption\n" in table

    result = signed(register, "exempt", HERITAGE, "--until", days_from_now(0))
    identifier = result.out.partition(":")[0]
    assert result.out == f"{identifier}: heritage/sites is exempt from heritage-sites@1 until {days_from_now(0)}\n"
    assert signed(register, "end", identifier, "--json").json == {"exemption": identifier, "ended": True}
    not_text = os.fsdecode(b"heritage-\xff")
    result = signed(register, "exempt", HERITAGE, "--until", days_from_now(1), "--keys", not_text, "--json")
    assert "Traceback" not in result.err


def test_invalid_exemptions_are_refused(empty: Register) -> None:
    for day in (days_from_now(-1), days_from_now(367)):
        refused(
            signed(empty, "exempt", HERITAGE, "--until", day),
            f"an exemption must end between today and 366 days from now, not on {day}",
        )
    refused(
        signed(empty, "exempt", "heritage/none", "--until", days_from_now(1)),
        f"dataset 'heritage/none' is not declared; declared: {', '.join(empty.site.services.datasets)}",
    )
    refused(
        signed(empty, "exempt", "usgs/streamflow", "--until", days_from_now(1)),
        "policy not-sensitive@2 masks nothing, so there is nothing to exempt",
    )
    refused(signed(empty, "end", "exempt-0"), "there is no exemption 'exempt-0'")
    misused(signed(empty, "exempt", HERITAGE, "--until", "tomorrow"), "'tomorrow' does not match the format")
    misused(signed(empty, "exempt", HERITAGE), "Missing option '--until'")
    assert review(empty, "exemptions").out == "0 exemptions\n"


def test_bytes_that_are_not_text_cause_no_traceback(staged: Register) -> None:
    broken = os.fsdecode(b"heritage-\xff")
    for result in (review(staged, "show", broken), signed(staged, "end", broken)):
        assert (result.code, result.err.count("\n")) == (1, 1)


def test_a_new_key_can_approve_once_it_is_in_the_authoritys_file(register: Register) -> None:
    stage(register)
    out = register.site.root / "new" / "mine.pem"
    result = review(register, "keygen", "heritage-review-board", "--out", str(out), "--holder", "O: 'Neil' #1 é")
    assert result.code == 0
    assert mode(out) == 0o600
    assert mode(out.parent) == 0o700
    assert str(out) in result.err
    assert "PRIVATE" not in result.out + result.err

    path = register.site.root / "resources/authorities/heritage-review-board.yaml"
    path.write_text(f"authority: heritage-review-board\nname: Board\nkind: steward\nkeys:\n{result.out}")
    [key] = Authority.model_validate(yaml.safe_load(path.read_text())).keys
    assert key.holder == "O: 'Neil' #1 é"
    assert (key.valid_until - key.valid_from).days == 730
    assert key.valid_from == datetime.now(UTC).date()

    digest = register.waiting().release_digest
    answer = signed(register, "approve", KEY, "--digest", digest, "--json", key=out).json
    assert answer == {"decision": "approved", "key": KEY, "release": digest}
    assert register.site.fetch("SELECT holder FROM kfm.review_decisions") == [{"holder": key.holder}]


def test_a_key_is_never_overwritten_and_its_folder_must_be_writable(tmp_path: Path) -> None:
    environment = dict(os.environ)
    out, board = tmp_path / "mine.pem", "heritage-review-board"
    made = kfm(environment, "review", "keygen", board, "--out", str(out), "--days", "7", "--json").json
    assert (made["authority"], made["private_key"]) == (board, str(out))
    valid = [date.fromisoformat(made["key"][name]) for name in ("valid_from", "valid_until")]
    assert (valid[1] - valid[0]).days == 7

    before = out.read_bytes()
    refused(
        kfm(environment, "review", "keygen", board, "--out", str(out)), "mine.pem exists; a key is never overwritten"
    )
    assert out.read_bytes() == before
    below = out / "other.pem"
    refused(
        kfm(environment, "review", "keygen", board, "--out", str(below)),
        f"other.pem cannot be written: {out}: File exists",
    )
    misused(kfm(environment, "review", "keygen", board, "--out", str(below), "--days", "0"), "--days")
