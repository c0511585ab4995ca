"""When the data, the policy, the masker or the verifier is wrong, nothing is published, and one sentence states the
reason without a value of the data."""

import gzip
import itertools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfm_pipelines.care.governance import governance_of
from kfm_pipelines.care.masks import MaskingResult, mask_table
from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.care.review.page_data import review_page
from kfm_pipelines.catalog.collections import tables
from kfm_pipelines.catalog.collections.geoparquet_snapshot import take_snapshot
from kfm_pipelines.catalog.lineage.graph import write_graph
from kfm_pipelines.catalog.prov.graph import compress_lines
from kfm_pipelines.catalog.stac.geoparquet import items_table
from kfm_pipelines.errors import PolicyRefused, ReviewRefused, ServiceUnavailable
from kfm_pipelines.gates import Verdict
from kfm_pipelines.orchestration.resource import services_of_process
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute import inputs
from kfm_pipelines.stages.validate.table_gates import gate_record
from kfm_pipelines.state.keys import Claim
from kfm_pipelines.state.revisions import current_revision
from kfm_pipelines.state.verdicts import GateVerdict
from kfm_pipelines.stores.layout import PROVENANCE_GRAPH
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.declarations import change
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.runs.crash import kill_worker
from kfm_pipelines_tests.fixtures.runs.dispatch import materialized
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

TABLE = "catalog/heritage-sites/items.parquet"
# Another key that had the same bytes under the exemption, and then different ones.
TWIN = (
    """
    INSERT INTO kfm.keys (key, dataset, window_start, window_end)
    SELECT %(twin)s, dataset, window_start, window_end FROM kfm.keys
    """,
    """
    INSERT INTO kfm.audit (action, actor, dataset, key, txn, policy, digest, detail)
    SELECT action, actor, dataset, %(twin)s, txn, policy, digest, detail FROM kfm.audit WHERE action = 'exempted'
    """,
    """
    INSERT INTO kfm.revisions
        (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id)
    SELECT %(twin)s, 1, 1, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id FROM kfm.revisions
    WHERE revision = 1 LIMIT 1
    """,
    """
    INSERT INTO kfm.revisions
        (key, revision, txn, inputs_hash, fingerprint, content_hash, item_hash, rows, bytes, run_id)
    SELECT %(twin)s, 2, 2, repeat('0', 64), fingerprint, repeat('0', 64), item_hash, rows, bytes, run_id
    FROM kfm.revisions WHERE revision = 1 LIMIT 1
    """,
)


@pytest.fixture
def register(site: Site) -> Register:
    return with_reviewer(site)


def changed_policy(register: Register, **changes: Any) -> None:
    change(register.site.root / "resources" / "policies" / "heritage-sites.yaml", **changes)


@dataclass(frozen=True)
class Wrong:
    table: Callable[[Register], pa.Table]
    reason: str
    triage: str = "care"


def _swapped(register: Register) -> pa.Table:
    table = sites(register.dataset)
    return table.set_column(3, "latitude", table.column("longitude")).set_column(
        4, "longitude", table.column("latitude")
    )


def _with(**columns: Any) -> Callable[[Register], pa.Table]:
    return lambda register: sites(register.dataset, **columns)


def _in_utm(register: Register) -> pa.Table:
    table = sites(register.dataset)
    field = table.schema.field("latitude").with_metadata({"crs": "EPSG:26914"})
    return table.cast(table.schema.set(table.schema.get_field_index("latitude"), field))


WRONG_DATA = {
    "unknown class": Wrong(_with(sensitivity=["open"] * 60), "class"),
    "undeclared class": Wrong(_with(sensitivity=["top secret"] * 60), "class"),
    "missing label": Wrong(_with(sensitivity=[None] + ["withheld"] * 59), "sensitivity", "schema"),
    "swapped latitude and longitude": Wrong(_swapped, "longitude and latitude look swapped", "schema"),
    "not a number": Wrong(_with(latitude=[float("nan")] + [38.5] * 59), "latitude", "schema"),
    "infinite": Wrong(_with(longitude=[float("-inf")] + [-97.5] * 59), "longitude", "schema"),
    "no coordinate": Wrong(_with(longitude=[None] + [-97.5] * 59), "longitude", "schema"),
    "metres instead of degrees": Wrong(_with(longitude=[500_000.0] * 60), "longitude", "schema"),
    "outside the area": Wrong(
        _with(longitude=[-80.0] * 60), "places in kansas_statewide, found 60 of 60 rows outside", "schema"
    ),
    "another coordinate system": Wrong(_in_utm, "EPSG:26914, not in WGS 84", "schema"),
    "extra column": Wrong(lambda r: sites(r.dataset).append_column("gps", [["38.21"] * 60]), "gps", "schema"),
    "missing column": Wrong(lambda r: sites(r.dataset).drop_columns(["period"]), "period", "schema"),
}


def test_wrong_data_is_not_published(register: Register) -> None:
    """All go into the same few keys, one after the other, and each fails for its own reason."""
    names = iter(WRONG_DATA)
    while batch := dict(zip((3, 4, 5), names, strict=False)):
        for month, name in batch.items():
            register.put(WRONG_DATA[name].table(register), month=month)
        assert work_in_batches(register.site)["failed"] == len(batch), batch
        for month, name in batch.items():
            _assert_refused(register, WRONG_DATA[name].reason, WRONG_DATA[name].triage, key_of_month(month))
    # Refusals before masking are recorded as well, without values or bytes.
    found = register.site.fetch(
        "SELECT rule, subject, sample FROM kfm.qa_findings WHERE severity = 'error' ORDER BY id"
    )
    assert {("column-declared", "gps"), ("column-present", "period")} <= {
        (one["rule"], one["subject"]) for one in found
    }
    assert {one["sample"] for one in found} == {""}
    assert [register.site.red(key_of_month(month)) for month in (3, 4, 5)] == [[], [], []]


def key_of_month(month: int) -> str:
    return KEY.replace("2026-05", f"2026-{month:02d}")


def _assert_refused(register: Register, expected: str, triage: str = "care", key: str = KEY) -> None:
    reason = register.reason(key)
    assert reason.startswith(f"{triage}: "), reason
    assert re.search(expected, reason), reason
    assert "\n" not in reason
    assert not re.search(r"38\.[0-9]|97\.[0-9]|14XX|Synthetic", reason), reason
    assert register.site.tree("catalog", "objects", "processed", "work") == {}
    assert register.site.fetch("SELECT * FROM kfm.revisions") == []


WRONG_POLICY: dict[str, tuple[dict[str, Any], str]] = {
    "review overdue": ({"reviewed_on": date(2024, 1, 1)}, "was due for review by 2024-12-31"),
    "review in the future": ({"reviewed_on": date(2099, 1, 1)}, "is reviewed only on 2099-01-01"),
    "undecided column": ({"columns": {"keep": ["period"]}}, "does not say whether 'site_id' is kept or withheld"),
    "unknown authority": ({"authority": "nobody"}, "names the authority 'nobody', whom nobody declared"),
    "unknown secret": ({"key_id": "heritage-2027"}, "the secret of key heritage-2027 is not there"),
}
NO_POLICY: dict[str, tuple[str | None, str, str]] = {
    "empty": ("", "the masking policy 'heritage-sites' is empty", "care"),
    "missing": (None, "there is no masking policy 'heritage-sites'", "care"),
    "incomplete": ("policy: heritage-sites\nsensitivity: secret\n", "heritage-sites.yaml: ", "configuration"),
}


def test_a_wrong_or_missing_policy_publishes_nothing(register: Register) -> None:
    """All apply to the same key, one after the other, and each fails for its own reason."""
    path = register.site.root / "resources" / "policies" / "heritage-sites.yaml"
    honest = path.read_text()
    tables = (sites(register.dataset, count) for count in itertools.count(60))

    for changes, expected in WRONG_POLICY.values():
        path.write_text(honest)
        changed_policy(register, **changes)
        _assert_fails(register, next(tables), expected)
    for text, expected, triage in NO_POLICY.values():
        path.unlink() if text is None else path.write_text(text)
        _assert_fails(register, next(tables), expected, triage)


def _assert_fails(register: Register, table: pa.Table, expected: str, triage: str = "care") -> None:
    for services in _services(register):
        services.cache.clear()
    register.put(table)
    assert work_in_batches(register.site)["failed"] == 1, expected
    _assert_refused(register, expected, triage)


def test_a_policy_and_a_secret_cannot_change_under_the_same_name(register: Register) -> None:
    services = register.site.services
    register.put(sites(register.dataset))
    work_in_batches(register.site)
    services.cache[("care secret", "heritage-2026")] = b"another secret that is also long enough"
    with pytest.raises(Exception, match=r"the secret of key heritage-2026 is not the one it was"):
        governance_of(services, register.dataset)

    changed_policy(register, minimum_count=3)
    services.cache.clear()
    with pytest.raises(Exception, match=r"heritage-sites@1 is not what it was when it was first used"):
        governance_of(services, register.dataset)
    changed_policy(register, version=2)
    services.cache.clear()
    governance_of(services, register.dataset)


def _fail(*_: object) -> None:
    raise RuntimeError("at 38.2104, -97.8311 there is Synthetic site 00017")


def _mask_carelessly(table: pa.Table, *arguments: Any) -> MaskingResult:
    """Masks, but publishes true longitudes."""
    honest = mask_table(table, *arguments)
    true = table.column("longitude").to_pylist()[: honest.table.num_rows]
    place = honest.table.schema.get_field_index("longitude")
    published = honest.table.set_column(place, honest.table.schema.field(place), [pa.array(true, pa.float64())])
    return MaskingResult(published, honest.crosswalk, honest.measures)


MASKER, VERIFIER = "kfm_pipelines.stages.mask.mask_table", "kfm_pipelines.stages.validate.release_gates.judge_care"
FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "masker fails": (MASKER, _fail, "masking failed: RuntimeError; nothing is published"),
    "verifier fails": (VERIFIER, _fail, "the care gate failed: RuntimeError; nothing is published"),
    # The verifier shares nothing with the masks, so it notices when they are wrong.
    "masker is careless": (MASKER, _mask_carelessly, "care gate: "),
}


def test_a_faulty_masker_or_verifier_publishes_nothing(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, (target, fault, expected) in enumerate(FAULTS.values(), start=60):
        with monkeypatch.context() as patch:
            patch.setattr(target, fault)
            _assert_fails(register, sites(register.dataset, count), expected)


def test_a_verdict_about_other_bytes_publishes_nothing(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(verdict: Verdict, digest: str, report: Any = None) -> GateVerdict:
        return gate_record(verdict, "0" * 64 if verdict.gate == "care" else digest, report)

    monkeypatch.setattr("kfm_pipelines.stages.validate.release_gates.gate_record", elsewhere)
    register.put(sites(register.dataset))
    assert work_in_batches(register.site)["failed"] == 1
    _assert_refused(
        register, "governance gate: release: expected a green care verdict on .*, found release 000000000000"
    )

    # `publish` would not accept it either.
    green = Verdict("governance", ())
    monkeypatch.setattr("kfm_pipelines.stages.validate.release_gates.judge_governance", lambda _: green)
    register.put(sites(register.dataset, condition=["poor"] * 60))
    work_in_batches(register.site)
    register.approve()
    assert work_in_batches(register.site)["failed"] == 1
    _assert_refused(register, "the care gate judged other bytes than the ones staged")


def test_an_exemption_publishes_everything_and_blocks_once_it_has_expired(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = register.site
    today = site.services.today()
    given = exempt.grant_exemption(
        site.services, "heritage/sites", "", today + timedelta(days=1), register.private_key, "for the court"
    )
    register.publish(sites(register.dataset), Site.work)
    assert "site_id" in register.published().column_names
    assert register.published().column("site_id").to_pylist()[0] == "14XX00000"
    assert "map" not in materialized(register.dataset)[KEY]  # what may be withdrawn is not drawn
    item = (site.data / f"catalog/heritage-sites/items/{KEY}.json").read_text()
    assert all(text in item for text in (given.id, "for the court"))
    href = json.loads(item)["assets"]["provenance"]["href"]
    provenance = site.data / "catalog/heritage-sites/items" / href
    assert "care:Exemption" in provenance.read_text()
    assert "care:Masking" not in provenance.read_text()

    take_snapshot(site.services, register.dataset)
    collection = site.data / "catalog/heritage-sites/collection.json"
    taken = (site.data / TABLE).read_bytes()
    assert "items.parquet" in collection.read_text()
    assert write_graph(site.services).releases == 1
    traces = (given.id, str(json.loads(item)["bbox"][0]), *_digests(site))
    folders = {"catalog", "objects", "processed", "reports"}
    assert {path.partition("/")[0] for path in _paths_with(site, traces)} == folders

    _another_day(register, today + timedelta(days=2))
    register.put(sites(register.dataset, 61))
    assert work_in_batches(site)["failed"] == 1
    assert f"care: exemption {given.id} from policy heritage-sites@1 ran out on" in register.reason()
    assert site.fetch("SELECT revision FROM kfm.revisions") == [{"revision": 1}]

    unmasked = site.fetch("SELECT content_hash FROM kfm.revisions")[0]["content_hash"]
    assert site.services.store.exists(f"objects/sha256/{unmasked[:2]}/{unmasked}.parquet")
    exempt.end_exemption(site.services, given.id, register.private_key, "the case is over")
    _assert_withdrawn_for_other_versions_and_keys(register)
    work_in_batches(site)
    register.approve()
    (site.data / PROVENANCE_GRAPH).unlink()
    snapshot = _Interrupted(items_table, lambda: _publish_after_an_outage(site, monkeypatch, taken))
    graph = _Interrupted(compress_lines, lambda: take_snapshot(site.services, register.dataset, anyway=True))
    with monkeypatch.context() as patch:
        patch.setattr("kfm_pipelines.catalog.stac.geoparquet.items_table", snapshot)
        patch.setattr("kfm_pipelines.catalog.lineage.graph.compress_lines", graph)
        assert write_graph(site.services).releases == 1
    assert [given.id in str(lines) for lines in graph.given] == [True, False]
    assert [given.id in str(items) for items in snapshot.given] == [True, False]
    assert (site.data / TABLE).read_bytes() == items_table(snapshot.given[1])
    # Neither the key nor the content hash leads to the unmasked bytes.
    assert not site.services.store.exists(f"objects/sha256/{unmasked[:2]}/{unmasked}.parquet")
    # Nor does the history.
    history = site.data / "catalog/heritage-sites/history" / KEY
    assert [path.name for path in history.iterdir()] == ["2.json"]
    for path in (history / "2.json", history.with_name(f"{KEY}.json")):
        for gone in ("/1.json", "predecessor-version"):
            assert gone not in path.read_text()
    # Nor does anything else that readers can see.
    assert _paths_with(site, traces) == []
    assert set(register.published().column("site_id").to_pylist()) == {
        "Withheld to protect the site; ask the heritage review board"
    }
    actions = {row["action"] for row in site.fetch("SELECT action FROM kfm.audit")}
    assert {"exemption-given", "exempted", "exemption-ended", "masked"} <= actions


def _publish_after_an_outage(site: Site, monkeypatch: pytest.MonkeyPatch, taken: bytes) -> None:
    """Publishing stops after the withdrawal and before its commit. Meanwhile a snapshot writes a table of Items that
    still contains the withdrawn one."""
    with monkeypatch.context() as patch:
        patch.setattr("kfm_pipelines.stages.publish.promote._document", _unavailable)
        assert work_in_batches(site)["published"] == 0
    assert not (site.data / "catalog/heritage-sites/history" / KEY / "1.json").exists()
    assert not (site.data / TABLE).exists()
    (site.data / TABLE).write_bytes(taken)
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    assert work_in_batches(site)["published"] == 1
    assert list((site.data / TABLE).parent.glob("items.parquet*")) == []
    assert "items.parquet" not in (site.data / TABLE).with_name("collection.json").read_text()


def _assert_withdrawn_for_other_versions_and_keys(register: Register) -> None:
    """A newer declared version must not skip the unmasked revision, and another key that once had the same content must
    not keep it."""
    services, dataset = register.site.services, register.dataset
    later = dataset.model_copy(update={"key": dataset.key.model_copy(update={"transform_version": "v1-1-0"})})
    current = current_revision(services.database, KEY)
    with pytest.raises(PolicyRefused, match="revision 1 is public unmasked and no exemption covers it any more"):
        inputs._skip_other_version(services, later, Claim(KEY, 1, 1, "nobody"), current)
    with services.database.transaction() as connection:
        found = []
        for statement in TWIN:
            connection.execute(statement.encode(), {"twin": KEY.replace("2026-05", "2026-06")})
            found.append(len(tables.find_withdrawn_contents(connection, {KEY: "1" * 64})))
        assert found == [1, 1, 0, 1]
        connection.rollback()


class _Interrupted:
    """A function during whose first call something else happens."""

    def __init__(self, function: Callable[[list[Any]], bytes], meanwhile: Callable[[], object]) -> None:
        self._function = function
        self._meanwhile = meanwhile
        self.given: list[list[Any]] = []

    def __call__(self, parts: Iterable[Any]) -> bytes:
        self.given.append(list(parts))
        if len(self.given) == 1:
            self._meanwhile()
        return self._function(self.given[-1])


def _unavailable(*_: object) -> None:
    raise ServiceUnavailable("for a moment")


def _digests(site: Site) -> list[str]:
    """Returns the digests of everything in the only release."""
    [row] = site.fetch("SELECT detail FROM kfm.wal WHERE step = 'publish'")
    detail = row["detail"]
    return [detail["content_hash"], detail["item_hash"], *detail["documents"].values(), *detail["records"].values()]


def _paths_with(site: Site, traces: tuple[str, ...]) -> list[str]:
    """Returns public paths with any of these texts in their name or content."""
    paths = [path for top in ("catalog", "objects", "processed", "reports") for path in site.tree(top)]
    return [path for path in paths if any(one.encode() in _content(site.data / path) or one in path for one in traces)]


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def test_an_exemption_changed_in_the_database_does_not_count(register: Register) -> None:
    site = register.site
    exempt.grant_exemption(
        site.services, "heritage/sites", "", site.services.today(), register.private_key, "for the court"
    )
    site.services.database.execute("ALTER TABLE kfm.exemptions DISABLE TRIGGER append_only")
    site.services.database.execute("UPDATE kfm.exemptions SET until = '2099-01-01'")
    register.put(sites(register.dataset))
    assert work_in_batches(site)["failed"] == 1
    _assert_refused(register, "is not what was signed")


def test_only_reviewers_see_what_an_exemption_would_publish(register: Register) -> None:
    site = register.site
    exempt.grant_exemption(
        site.services, "heritage/sites", "", site.services.today(), register.private_key, "for the court"
    )
    register.put(sites(register.dataset))
    work_in_batches(site)
    with pytest.raises(ReviewRefused, match="it would go out unmasked; it takes a reviewer's --key to see it"):
        review_page(site.services, KEY, None)
    assert "14XX00000" in review_page(site.services, KEY, register.private_key)


def test_a_release_whose_exemption_ended_is_not_rolled_forward(register: Register) -> None:
    """Its run was killed after the intent to publish, and the exemption was ended afterwards."""
    site = register.site
    given = exempt.grant_exemption(
        site.services, "heritage/sites", "", site.services.today(), register.private_key, "for the court"
    )
    register.put(sites(register.dataset))
    work_in_batches(site)
    register.approve()
    kill_worker(site, "after", "publish", KEY, 1)
    exempt.end_exemption(site.services, given.id, register.private_key, "not after all")

    work_in_batches(site)

    assert site.tree("catalog", "objects", "processed") == {}
    register.approve()
    assert site.work()["published"] == 1
    assert "14XX00000" not in register.published().column("site_id").to_pylist()
    assert "map" in materialized(register.dataset)[KEY]


def test_an_intent_written_into_the_log_publishes_nothing(register: Register) -> None:
    """Write access to the log must not be enough to publish."""
    site = register.site
    register.put(sites(register.dataset))
    work_in_batches(site)
    site.services.database.execute(
        """
        INSERT INTO kfm.wal (key, txn, epoch, step, run_id, detail)
        SELECT key, txn, epoch, 'publish', run_id, detail FROM kfm.wal WHERE step = 'stage_atomic'
        """
    )
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")

    work_in_batches(site)

    assert site.tree("catalog", "objects", "processed") == {}
    assert register.waiting().txn == 2
    [given_up] = site.fetch("SELECT detail ->> 'reason' AS reason FROM kfm.wal WHERE txn = 1 AND step = 'fail'")
    assert "nobody with authority has approved this release" in given_up["reason"]


def _another_day(register: Register, day: date) -> None:
    for services in _services(register):
        object.__setattr__(services, "today", lambda: day)


def _services(register: Register) -> tuple[Services, Services]:
    """Returns the site's services and those that runs in this process use."""
    return register.site.services, services_of_process(register.site.services.settings)
