"""A sensitive release awaits the authority, who decides about exactly the bytes they saw."""

import json
from collections.abc import Iterator
from datetime import date

import pytest

from kfm_pipelines.care.review import decide
from kfm_pipelines.care.review.page_data import review_page
from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines.errors import PolicyRefused, ReviewRefused, SignatureRefused
from kfm_pipelines.gates import GATES
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

pytestmark = pytest.mark.slow


@pytest.fixture
def register(site: Site) -> Register:
    return with_reviewer(site)


@pytest.fixture(scope="module")
def staged(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Register]:
    """A release that awaits review, for tests that change nothing."""
    root = tmp_path_factory.mktemp("staged") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as site:
        register = with_reviewer(site)
        register.put(sites(register.dataset))
        assert site.work() == {"keys": 0, "published": 0, "skipped": 0, "failed": 0, "awaiting_review": 1}
        yield register


def stage(register: Register) -> str:
    register.put(sites(register.dataset))
    work_in_batches(register.site)
    return register.waiting().release_digest


def test_a_release_is_published_masked_and_labelled_after_its_approval_only(register: Register) -> None:
    site = register.site
    stage(register)
    assert site.tree("catalog", "objects", "processed") == {}
    release = register.waiting().release
    review_page(site.services, KEY, register.private_key)
    register.approve()
    assert work_in_batches(site)["published"] == 1
    [revision] = site.fetch("SELECT revision, content_hash, item_hash FROM kfm.revisions")
    assert revision == {"revision": 1, "content_hash": release["content_hash"], "item_hash": release["item_hash"]}
    assert site.tree("work") == {}

    rows = site.fetch("SELECT action, actor, policy FROM kfm.audit WHERE dataset = 'heritage/sites' ORDER BY id")
    assert [row["action"] for row in rows] == [
        "policy-used", "masked", "review-asked", "restricted-read", "review-approved", "masked"
    ]  # fmt: skip
    assert {row["policy"] for row in rows} == {"heritage-sites@1"}
    assert rows[3]["actor"] == rows[4]["actor"] == "A reviewer of the tests"
    _assert_masked_and_labelled(register)


def _assert_masked_and_labelled(register: Register) -> None:
    item = json.loads((register.site.data / f"catalog/heritage-sites/items/{KEY}.json").read_text())
    properties = item["properties"]
    assert properties["kfm:gates"] == dict.fromkeys(GATES, "green")
    assert properties["kfm:labels"] == ["care:authority-to-control", "care:responsibility", "tk:culturally-sensitive"]
    assert "not where things are" in properties["anon:warning"]
    path = register.site.data / "catalog/heritage-sites/items" / item["assets"]["provenance"]["href"]
    provenance = json.loads(path.resolve().read_text())
    [activity] = [node for node in provenance["@graph"] if "care:Masking" in node["@type"]]
    assert activity["care:keyId"] == "heritage-2026"

    table = register.published()
    assert table.column("record").to_pylist() == list(range(1, table.num_rows + 1))
    assert set(table.column("site_name").to_pylist()) == {"Withheld to protect the site; ask the heritage review board"}
    assert not {"easting", "northing", "directions"} & set(table.column_names)


def test_the_run_succeeds_without_a_materialization(staged: Register) -> None:
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS
        asset = ["heritage", "sites"]
        assert instance.get_latest_materialization_event(dg.AssetKey([*asset, "publish"])) is None
        event = instance.get_latest_materialization_event(dg.AssetKey([*asset, "stage"]))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["care/policy"].value == "heritage-sites@1"
    assert metadata["care/smallest_cell"].value == 5
    assert str(metadata["care/map"].value).startswith("![what readers will see](data:image/png;base64,iVBOR")


def test_a_rejected_release_fails_with_the_reason_and_leaves_nothing(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)

    register.reject("the nation has asked for time")

    assert register.reason() == f"care: {KEY}: refused by A reviewer of the tests: the nation has asked for time"
    assert site.tree() == {}
    assert site.fetch("SELECT step, outcome FROM kfm.wal ORDER BY id DESC LIMIT 1") == [
        {"step": "fail", "outcome": "FAILED"}
    ]
    # The same bytes are rejected again without another review.
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert work_in_batches(site)["failed"] == 1
    assert "refused by A reviewer" in register.reason()


def test_changed_bytes_need_another_approval(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    first = register.waiting().release_digest
    register.approve()
    register.put(sites(register.dataset, condition=["poor"] * 60))

    assert work_in_batches(site)["published"] == 0
    second = register.waiting().release_digest
    assert second != first
    with pytest.raises(ReviewRefused, match="awaits review, not"):
        decide.approve(site.services, KEY, first, register.private_key, "as before")
    register.approve()
    assert work_in_batches(site)["published"] == 1
    assert set(register.published().column("condition").to_pylist()) <= {"poor", None}


def test_a_later_event_replaces_what_awaits_review(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    register.put(sites(register.dataset, site_id=[f"14YY{number:05d}" for number in range(60)]), number=2)
    work_in_batches(site)

    assert register.waiting().txn == 2
    outcomes = site.fetch("SELECT txn, detail ->> 'reason' AS reason FROM kfm.wal WHERE step = 'fail'")
    assert outcomes == [{"txn": 1, "reason": "its review is over, or something newer came; computed again"}]


@pytest.mark.parametrize("digest", ["", "0" * 64, "short"])
def test_an_approval_must_name_the_release(staged: Register, digest: str) -> None:
    with pytest.raises(ReviewRefused, match="look at it first"):
        decide.approve(staged.site.services, KEY, digest, staged.private_key, "yes")


def test_nobody_else_can_decide_or_see_the_true_places(staged: Register) -> None:
    stranger = staged.site.root / "stranger.pem"
    create_private_key(stranger)
    digest = staged.waiting().release_digest
    for act in (decide.approve, decide.reject):
        with pytest.raises(SignatureRefused, match="does not belong to heritage-review-board"):
            act(staged.site.services, KEY, digest, stranger, "let me")
    with pytest.raises(SignatureRefused, match="does not belong to heritage-review-board"):
        review_page(staged.site.services, KEY, stranger)
    assert staged.site.fetch("SELECT * FROM kfm.review_decisions") == []
    assert staged.site.fetch("SELECT * FROM kfm.audit WHERE action = 'restricted-read'") == []
    assert staged.waiting().release_digest == digest


def test_an_unsigned_decision_in_the_database_does_not_count(register: Register) -> None:
    register.put(sites(register.dataset))
    work_in_batches(register.site)
    digest = register.waiting().release_digest
    register.site.services.database.execute(
        """
        INSERT INTO kfm.review_decisions
            (key, release_digest, decision, statement, authority, holder, key_id, signature)
        VALUES (%(key)s, %(digest)s, 'approved', %(statement)s::jsonb, 'heritage-review-board', 'me', %(id)s, 'AAAA')
        """,
        {
            "key": KEY,
            "digest": digest,
            "statement": json.dumps(
                {"statement": "review", "decision": "approved", "key": KEY, "release": digest, "reason": "trust me"}
            ),
            "id": "0" * 16,
        },
    )
    register.site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert work_in_batches(register.site)["failed"] == 1
    assert "does not belong to heritage-review-board" in register.reason()
    assert register.site.tree() == {}


def test_a_rejection_is_final_even_if_an_old_approval_is_written_again(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    digest = register.waiting().release_digest
    register.approve()
    decide.reject(site.services, KEY, digest, register.private_key, "we have thought again")
    site.services.database.execute(
        """
        INSERT INTO kfm.review_decisions
            (key, release_digest, decision, statement, authority, holder, key_id, signature)
        SELECT key, release_digest, decision, statement, authority, holder, key_id, signature
        FROM kfm.review_decisions WHERE decision = 'approved'
        """
    )
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    work_in_batches(site)
    assert register.reason() == f"care: {KEY}: refused by A reviewer of the tests: we have thought again"
    assert site.tree() == {}


def test_a_replaced_release_cannot_be_rejected(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    seen = register.waiting().release_digest
    register.put(sites(register.dataset, condition=["poor"] * 60))
    work_in_batches(site)
    newer = register.waiting().release_digest
    with pytest.raises(ReviewRefused, match="look at it first"):
        decide.reject(site.services, KEY, seen, register.private_key, "no")
    assert register.waiting().release_digest == newer


def test_a_release_can_be_rejected_under_an_overdue_policy(register: Register) -> None:
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    site.services.cache.clear()
    object.__setattr__(site.services, "today", lambda: date(2027, 8, 1))
    digest = register.waiting().release_digest
    with pytest.raises(PolicyRefused, match="was due for review"):
        decide.approve(site.services, KEY, digest, register.private_key, "yes")
    decide.reject(site.services, KEY, digest, register.private_key, "not under this policy")
    assert site.tree() == {}


def test_a_reason_with_coordinates_is_refused(staged: Register) -> None:
    with pytest.raises(ReviewRefused, match="the reason seems to contain coordinates"):
        staged.reject("the mound at 38.21034, -97.83012 can be found")
    assert staged.site.fetch("SELECT * FROM kfm.review_decisions") == []


def test_only_reviewers_see_the_map_before_masking(staged: Register) -> None:
    restricted = review_page(staged.site.services, KEY, staged.private_key)
    public = review_page(staged.site.services, KEY, None)
    assert restricted.count("data:image/png;base64") == 2
    assert public.count("data:image/png;base64") == 1
    assert staged.waiting().release_digest in public


def test_only_the_owner_can_read_restricted_files(staged: Register) -> None:
    tier = staged.site.data / "work" / "restricted"
    kept = sorted(path.name for path in tier.rglob("*.parquet"))
    assert kept == ["table.parquet"]
    folders = [staged.site.data / "work", tier, *(path for path in tier.rglob("*") if path.is_dir())]
    assert {folder.stat().st_mode & 0o077 for folder in folders} == {0}
    assert {path.stat().st_mode & 0o077 for path in tier.rglob("*.parquet")} == {0}


def test_the_page_compares_with_the_last_release(register: Register) -> None:
    register.publish(sites(register.dataset))
    register.put(sites(register.dataset, 100))
    work_in_batches(register.site)
    assert register.waiting().release["revision"] == 2
    page = review_page(register.site.services, KEY, None)
    assert "first release" not in page.lower()
