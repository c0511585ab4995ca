"""Identity is pinned by golden vectors and cannot be confused by moving characters between fields."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.errors import ContractBroken
from kfm_pipelines.events import body_identity
from kfm_pipelines.events.identity import (
    auto_update_identity,
    dedupe_key_identities,
    feed_identities,
    member_identity,
    release_identity,
    s3_object_identity,
    s3_removal_identity,
)

text = st.text(st.characters(codec="utf-8"))
AT_03 = datetime(2025, 12, 4, 3, 14, 15, 123456, tzinfo=UTC)
PLACE = "kfm-ingest", "usgs/streamflow/f.parquet"

# The JSON of each rule and its `sha256sum`. Stored identities depend on them: never edit, add a rule version.
GOLDEN: list[tuple[Callable[[], str], str, str]] = [
    (
        lambda: s3_object_identity("kfm-ingest", "usgs/streamflow/a b.parquet", "abc123", "3Lg", 1048576),
        '["kfm-s3-object-1","kfm-ingest","usgs/streamflow/a b.parquet","abc123","3Lg",1048576]',
        "90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb",
    ),
    (
        lambda: s3_object_identity("kfm-ingest", "usgs/streamflow/é.parquet", None, None, 0),
        '["kfm-s3-object-1","kfm-ingest","usgs/streamflow/é.parquet",null,null,0]',
        "5f95bfd14afe7afe7a2f254a42061c301e81536c02d0d015fad7e9f578acce52",
    ),
    (
        lambda: auto_update_identity("usgs/streamflow", "s3://kfm-ingest/usgs/streamflow/f.parquet", 'W/"a1b2c3"'),
        r'["kfm-auto-update-1","usgs/streamflow","s3://kfm-ingest/usgs/streamflow/f.parquet","W/\"a1b2c3\""]',
        "771b775a0b2af9bb9abb9561143d9cfe50a46cb0cb01082d4ea131f6e56afb5e",
    ),
    (
        lambda: release_identity("atlas:ks:5:2025-W49:v1", "usgs:ks:none:2025-12-04T00Z:v1", 2, "ab12"),
        '["kfm-release-1","atlas:ks:5:2025-W49:v1","usgs:ks:none:2025-12-04T00Z:v1",2,"ab12"]',
        "a4b1307b6cf5e24a4a9c9d786bcfa62608a31936d1340d0464a923e0d0def7df",
    ),
    (
        lambda: body_identity(b"not json"),
        '["kfm-body-1","7ccfa1fbf3940e6f0c0375d87c0f9235a50514e14cb427bdfaf5077987b26ccf"]',
        "732048402e7abb7cdbf9128026952a7da29a23e9ac53a6add7a13a063c3ba2ca",
    ),
    (
        lambda: s3_removal_identity(*PLACE, "3Lg", "0055AE", AT_03),
        '["kfm-s3-removal-1","kfm-ingest","usgs/streamflow/f.parquet","3Lg","0055AE"]',
        "f34119a3de87b6765c4dfb6af5cc372558b2edf15616a5ba7c152c8ff2ada7c4",
    ),
    (
        lambda: s3_removal_identity(*PLACE, None, None, AT_03),
        '["kfm-s3-removal-1","kfm-ingest","usgs/streamflow/f.parquet",null,null,"2025-12-04T03:14:15.123456Z"]',
        "7a577448f0d8d5ae2846064b1a7c410fa8347da23458a0da952335a3f8708ec2",
    ),
    (
        lambda: dedupe_key_identities("kfm.hydrology.gauges", "2025-12-04T03Z", 1)[0],
        '["kfm-dedupe-key-1","kfm.hydrology.gauges","2025-12-04T03Z"]',
        "cedfd34af55714992da7db3ec64f9d14689b8e30a97d79ec1e0b09546c5c6b88",
    ),
    (
        lambda: dedupe_key_identities("kfm.hydrology.gauges", "2025-12-04T03Z", 2)[1],
        '["kfm-dedupe-key-1","kfm.hydrology.gauges","2025-12-04T03Z",1]',
        "c9e3cef48109d74caba9eddcfd22692870047dfa7ead14c7a621b769764641da",
    ),
    (
        lambda: feed_identities({"b": [1.5, None], "a": "é"}, 1)[0],
        '["kfm-feed-body-1",{"a":"é","b":[1.5,null]}]',
        "77588453a09cec35ab3fd19b8b2de9052ea1cbfbfc2a7ce8963b16c1f6875d9f",
    ),
    (
        lambda: feed_identities({"b": [1.5, None], "a": "é"}, 3)[2],
        '["kfm-feed-body-1",{"a":"é","b":[1.5,null]},2]',
        "626b5c07dfb22950cd5b605885f6208d5018469e39960470b563dca81030ed19",
    ),
    (
        lambda: member_identity("90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb", "riley"),
        '["kfm-member-1","90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb","riley"]',
        "b0ce9eec665cb1b6222d93a3af2ec32c1ecbcfd3d78434c463dca81583437891",
    ),
    (
        lambda: member_identity("90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb", "8226dffffffffff"),
        '["kfm-member-1","90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb","8226dffffffffff"]',
        "1510a0f2fcca3401133128c23ab7ee32e0d58df4376f3fe8d5cba0c5c29e1bd0",
    ),
]


@pytest.mark.parametrize(("identity", "encoded", "golden"), GOLDEN, ids=[encoded for _, encoded, _ in GOLDEN])
def test_golden_vectors(identity: Callable[[], str], encoded: str, golden: str) -> None:
    assert hashlib.sha256(encoded.encode()).hexdigest() == golden
    assert identity() == golden


def test_the_time_of_a_removal_counts_only_without_a_sequencer() -> None:
    later = AT_03 + timedelta(microseconds=1)
    assert s3_removal_identity(*PLACE, "v", "0A", AT_03) == s3_removal_identity(*PLACE, "v", "0A", later)
    assert s3_removal_identity(*PLACE, "v", None, AT_03) != s3_removal_identity(*PLACE, "v", None, later)
    elsewhere = AT_03.astimezone(timezone(timedelta(hours=-6)))
    assert s3_removal_identity(*PLACE, "v", None, AT_03) == s3_removal_identity(*PLACE, "v", "", elsewhere)


def test_records_of_one_message_have_identities_of_their_own() -> None:
    for several in (feed_identities({"a": 1}, 50), dedupe_key_identities("kfm.a.b", "k", 50)):
        assert len(set(several)) == 50
    assert feed_identities({"a": 1}, 0) == dedupe_key_identities("kfm.a.b", "k", 0) == []


def test_many_records_of_a_large_body_cost_one_reading_of_it() -> None:
    """Writing a megabyte once for each of its thousands of records would take hours."""
    large = {"tiles": [{"path": f"tiles/{number}", "filling": "x" * 20} for number in range(15_000)]}
    assert len(feed_identities(large, 15_000)) == 15_000


@pytest.mark.parametrize("number", [2**53, -(2**53), float("inf"), float("nan")])
def test_what_has_no_canonical_form_is_refused(number: float) -> None:
    with pytest.raises(ContractBroken, match="has no canonical form"):
        feed_identities({"a": [number]}, 1)


@pytest.mark.parametrize("absent", [None, "", "null"])
def test_an_absent_version_is_one_thing_however_it_is_written(absent: str | None) -> None:
    assert s3_object_identity("b", "k", "e", absent, 1) == s3_object_identity("b", "k", "e", None, 1)


def test_absent_etag_and_version_do_not_change_places() -> None:
    assert s3_object_identity("b", "k", "x", None, 1) != s3_object_identity("b", "k", None, "x", 1)
    assert s3_object_identity("b", "k", "", None, 1) == s3_object_identity("b", "k", None, None, 1)


@st.composite
def cut_in_two_ways(draw: st.DrawFn) -> list[tuple[str, str]]:
    joined = draw(st.text(st.characters(codec="utf-8"), min_size=1))
    cuts = draw(st.lists(st.integers(0, len(joined)), min_size=2, max_size=2, unique=True))
    return [(joined[:cut], joined[cut:]) for cut in cuts]


@given(cut_in_two_ways())
@settings(deadline=None)
def test_cutting_the_same_characters_elsewhere_is_another_event(cuts: list[tuple[str, str]]) -> None:
    assert len({auto_update_identity(*cut, "e") for cut in cuts}) == 2
    assert len({s3_object_identity(*cut, None, None, 1) for cut in cuts}) == 2
    assert len({s3_removal_identity(*cut, None, "0A", AT_03) for cut in cuts}) == 2
    assert len({dedupe_key_identities(*cut, 1)[0] for cut in cuts}) == 2


@given(st.tuples(text, text, text), st.tuples(text, text, text))
def test_two_events_share_an_identity_only_when_all_fields_agree(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (auto_update_identity(*one) == auto_update_identity(*other)) == (one == other)


@given(text, text, text)
def test_the_rules_never_collide(a: str, b: str, c: str) -> None:
    rules = {
        auto_update_identity(a, b, c),
        s3_object_identity(a, b, c, None, 0),
        s3_removal_identity(a, b, c, None, AT_03),
        *dedupe_key_identities(a, b, 1),
        *feed_identities({a: b}, 1),
        body_identity((a + b + c).encode()),
    }
    assert len(rules) == 6
