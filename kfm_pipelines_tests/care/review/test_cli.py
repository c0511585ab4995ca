"""`kfm review` as a reviewer types it: each command does what it says, and each mistake is one sentence and a code."""

import os
import stat
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
import yaml

from kfm_pipelines.care.governance import Authority
from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.sites.command import Said, kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

HERITAGE = "heritage/sites"
NONE_WAITS = f"kfm: {KEY}: no release of this key awaits review\n"


@pytest.fixture
def register(site: Site) -> Register:
    return with_reviewer(site)


@pytest.fixture
def waiting(register: Register) -> Register:
    """With one release that awaits review."""
    register.put(sites(register.dataset))
    register.site.work()
    return register


def review(register: Register, *arguments: str) -> Said:
    return kfm(register.site.environment, "review", *arguments)


def signed(register: Register, command: str, *arguments: str, key: Path | None = None) -> Said:
    """A command that takes a key and a reason."""
    return review(
        register, command, *arguments, "--key", str(key or register.private_key), "--reason", "as agreed [on: paper]"
    )


def refused(said: Said, sentence: str) -> None:
    assert (said.code, said.out, said.err) == (1, "", f"kfm: {sentence}\n")


def misused(said: Said, says: str) -> None:
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert "Traceback" not in said.err


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def days_from_now(days: int) -> str:
    return (datetime.now(UTC).date() + timedelta(days=days)).isoformat()


def test_where_nothing_waits_the_list_is_empty_and_nothing_can_be_decided(register: Register) -> None:
    assert review(register, "list").out == "0 releases await review\n"
    assert review(register, "list", "--json").json == {"waiting": []}
    for said in (
        review(register, "show", KEY),
        signed(register, "approve", KEY, "--digest", "0" * 64),
        signed(register, "reject", KEY, "--digest", "0" * 64),
    ):
        assert (said.code, said.out, said.err) == (1, "", NONE_WAITS)
    refused(review(register, "show", "a\x1b[2J\nb"), "a [2J b: no release of this key awaits review")


def test_what_waits_is_listed(waiting: Register) -> None:
    [one] = review(waiting, "list", "--json").json["waiting"]
    release = waiting.waiting()
    assert one["release"] == release.release_digest
    assert datetime.fromisoformat(one["since"]) == release.since
    assert {name: one[name] for name in ("key", "dataset", "revision", "policy", "authority")} == {
        "key": KEY,
        "dataset": HERITAGE,
        "revision": 1,
        "policy": "heritage-sites@1",
        "authority": "heritage-review-board",
    }
    table = review(waiting, "list").out
    assert KEY in table
    assert release.release_digest[:16] in table
    assert "1 releases await review; look at one with `kfm review show KEY`" in table
    assert review(waiting, "list", "--dataset", "usgs/streamflow", "--json").json == {"waiting": []}


def test_the_page_goes_where_only_its_owner_reads_it(waiting: Register, tmp_path: Path) -> None:
    digest, home = waiting.waiting().release_digest, waiting.site.root
    name = f"{KEY.replace(':', '_')}.html"

    public = review(waiting, "show", KEY, "--json").json
    assert public == {"key": KEY, "release": digest, "page": str(home / "review" / name), "restricted": False}
    restricted = review(waiting, "show", KEY, "--key", str(waiting.private_key), "--json").json
    assert restricted == {"key": KEY, "release": digest, "page": str(home / "restricted" / name), "restricted": True}
    elsewhere = tmp_path / "not/yet/there/page.html"
    said = review(waiting, "show", KEY, "--out", str(elsewhere))

    assert f"Release      {digest}\n" in said.out
    assert f"kfm review approve {KEY} --digest {digest[:16]} --key FILE --reason TEXT\n" in said.out
    for page in (Path(public["page"]), Path(restricted["page"]), elsewhere):
        assert mode(page) == 0o600
        assert mode(page.parent) == 0o700
        assert digest in page.read_text()
    counts = [Path(one["page"]).read_text().count("data:image/png;base64") for one in (public, restricted)]
    assert counts == [1, 2]


def test_a_page_that_others_could_read_is_closed_to_them(waiting: Register, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("an older page")
    page.chmod(0o644)
    review(waiting, "show", KEY, "--key", str(waiting.private_key), "--out", str(page))
    assert mode(page) == 0o600
    assert "an older page" not in page.read_text()


def test_a_page_that_cannot_be_written_is_a_sentence(waiting: Register, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "page.html"
    refused(review(waiting, "show", KEY, "--out", str(out)), f"the page cannot be written: {out.parent}: File exists")
    misused(review(waiting, "show", KEY, "--out", str(tmp_path)), "is a directory")


def keys_that_do_not_count(register: Register) -> dict[Path, str]:
    folder = register.site.root / "keys"
    stranger, open_to_all, rubbish = (folder / name for name in ("stranger.pem", "open.pem", "rubbish.pem"))
    create_private_key(stranger)
    open_to_all.write_bytes(register.private_key.read_bytes())
    open_to_all.chmod(0o644)
    rubbish.touch(mode=0o600)
    return {
        stranger: "is none of heritage-review-board's",
        open_to_all: "open.pem can be read by others; chmod 600 it first",
        rubbish: "rubbish.pem holds no private key",
        folder / "missing.pem": "missing.pem cannot be read: No such file or directory",
    }


def test_without_the_right_key_nothing_is_decided_or_shown(waiting: Register) -> None:
    digest = waiting.waiting().release_digest
    for key, says in keys_that_do_not_count(waiting).items():
        for said in (
            signed(waiting, "approve", KEY, "--digest", digest, key=key),
            signed(waiting, "reject", KEY, "--digest", digest, key=key),
            signed(waiting, "exempt", HERITAGE, "--until", days_from_now(1), key=key),
            review(waiting, "show", KEY, "--key", str(key)),
        ):
            assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
            assert says in said.err
    assert not (waiting.site.root / "restricted").exists()
    assert waiting.site.fetch("SELECT 1 FROM kfm.review_decisions UNION ALL SELECT 1 FROM kfm.exemptions") == []
    assert waiting.waiting().release_digest == digest


def test_another_digest_decides_nothing(waiting: Register) -> None:
    release = waiting.waiting().release_digest
    for command, digest in product(("approve", "reject"), ("0" * 64, "short", "")):
        said = signed(waiting, command, KEY, "--digest", digest)
        refused(said, f"{KEY}: release {release[:16]}… awaits review, not {digest[:16]!r}; look at it first")
        assert waiting.waiting().release_digest == release
    assert waiting.site.fetch("SELECT * FROM kfm.review_decisions") == []


def test_a_decision_needs_a_key_a_digest_and_a_reason(waiting: Register) -> None:
    key, digest = ("--key", str(waiting.private_key)), ("--digest", waiting.waiting().release_digest)
    misused(review(waiting, "approve", KEY, *digest, "--reason", "yes"), "Missing option '--key'")
    misused(review(waiting, "approve", KEY, *key, "--reason", "yes"), "Missing option '--digest'")
    misused(review(waiting, "approve", KEY, *key, *digest), "Missing option '--reason'")
    misused(review(waiting, "reject", KEY, *key, *digest, "--reason", " \t"), "'--reason': it is empty")
    assert waiting.site.fetch("SELECT * FROM kfm.review_decisions") == []


def test_what_is_approved_is_published_and_cannot_be_approved_twice(waiting: Register) -> None:
    digest = waiting.waiting().release_digest
    page = Path(review(waiting, "show", KEY, "--key", str(waiting.private_key), "--json").json["page"])

    said = signed(waiting, "approve", KEY, "--digest", digest[:12].upper())
    assert said.out.startswith(f"approved: {KEY}, release {digest[:16]}…; it is published by the next run")
    assert not page.exists()
    again = signed(waiting, "approve", KEY, "--digest", digest)
    assert (again.code, again.out, again.err) == (1, "", NONE_WAITS)
    assert waiting.site.work()["published"] == 1
    [decision] = waiting.site.fetch("SELECT decision, statement ->> 'reason' AS reason FROM kfm.review_decisions")
    assert decision == {"decision": "approved", "reason": "as agreed [on: paper]"}


def test_what_is_rejected_cannot_be_approved_any_more(waiting: Register) -> None:
    digest = waiting.waiting().release_digest
    page = Path(review(waiting, "show", KEY, "--key", str(waiting.private_key), "--json").json["page"])

    said = signed(waiting, "reject", KEY, "--digest", digest, "--json").json
    assert said == {"decision": "rejected", "key": KEY, "release": digest}
    assert not page.exists()
    then = signed(waiting, "approve", KEY, "--digest", digest, "--json")
    assert (then.code, then.out, then.err) == (1, "", NONE_WAITS)
    [letter] = kfm(waiting.site.environment, "dlq", "list", "--json").json["letters"]
    assert letter["reason"] == f"{KEY}: refused by A reviewer of the tests: as agreed [on: paper]"


def test_approving_answers_in_json(waiting: Register) -> None:
    digest = waiting.waiting().release_digest
    said = signed(waiting, "approve", KEY, "--digest", digest, "--json").json
    assert said == {"decision": "approved", "key": KEY, "release": digest}


def test_an_exemption_is_given_listed_and_ended_once(register: Register) -> None:
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

    said = signed(register, "end", given["id"])
    assert said.out == f"{given['id']} has ended; heritage/sites is masked under heritage-sites@1 again\n"
    refused(signed(register, "end", given["id"]), f"exemption {given['id']} has ended already")
    assert review(register, "exemptions", "--json").json == {"exemptions": [line | {"state": "ended"}]}
    table = review(register, "exemptions").out
    assert "as agreed [on: paper]" in table
    assert "1 exemptions" in table


def test_an_exemption_is_told_and_ended_in_either_form(register: Register) -> None:
    said = signed(register, "exempt", HERITAGE, "--until", days_from_now(0))
    identifier = said.out.partition(":")[0]
    assert said.out == f"{identifier}: heritage/sites is exempt from heritage-sites@1 until {days_from_now(0)}\n"
    ended = signed(register, "end", identifier, "--json").json
    assert ended == {"exemption": identifier, "ended": True}


def test_an_exemption_that_makes_no_sense_is_refused(register: Register) -> None:
    for day in (days_from_now(-1), days_from_now(367)):
        refused(
            signed(register, "exempt", HERITAGE, "--until", day),
            f"an exemption ends between today and 366 days from now, not on {day}",
        )
    refused(
        signed(register, "exempt", "heritage/none", "--until", days_from_now(1)),
        "dataset 'heritage/none' is not declared; declared: drought/tribal-areas, heritage/sites, usgs/streamflow",
    )
    refused(
        signed(register, "exempt", "usgs/streamflow", "--until", days_from_now(1)),
        "policy not-sensitive@2 masks nothing, so there is nothing to be exempted from",
    )
    refused(signed(register, "end", "exempt-0"), "there is no exemption 'exempt-0'")
    misused(signed(register, "exempt", HERITAGE, "--until", "tomorrow"), "'tomorrow' does not match the format")
    misused(signed(register, "exempt", HERITAGE), "Missing option '--until'")
    assert review(register, "exemptions").out == "0 exemptions\n"


def test_bytes_that_are_no_text_make_no_traceback(register: Register) -> None:
    broken = os.fsdecode(b"heritage-\xff")
    given = signed(register, "exempt", HERITAGE, "--until", days_from_now(1), "--keys", broken, "--json")
    assert "Traceback" not in given.err
    for said in (review(register, "show", broken), signed(register, "end", broken)):
        assert (said.code, said.err.count("\n")) == (1, 1)


def test_a_new_key_is_printed_as_it_goes_into_the_authoritys_file_and_then_approves(waiting: Register) -> None:
    out = waiting.site.root / "new" / "mine.pem"
    said = review(waiting, "keygen", "heritage-review-board", "--out", str(out), "--holder", "O: 'Neil' #1 é")
    assert said.code == 0
    assert mode(out) == 0o600
    assert mode(out.parent) == 0o700
    assert str(out) in said.err
    assert "PRIVATE" not in said.out + said.err

    path = waiting.site.root / "resources/authorities/heritage-review-board.yaml"
    path.write_text(f"authority: heritage-review-board\nname: Board\nkind: steward\nkeys:\n{said.out}")
    [key] = Authority.model_validate(yaml.safe_load(path.read_text())).keys
    assert key.holder == "O: 'Neil' #1 é"
    assert (key.valid_until - key.valid_from).days == 730
    assert key.valid_from == datetime.now(UTC).date()

    digest = waiting.waiting().release_digest
    assert signed(waiting, "approve", KEY, "--digest", digest, key=out).code == 0
    assert waiting.site.fetch("SELECT holder FROM kfm.review_decisions") == [{"holder": key.holder}]


def test_a_key_is_never_overwritten_and_its_place_has_to_be_writable(tmp_path: Path) -> None:
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
