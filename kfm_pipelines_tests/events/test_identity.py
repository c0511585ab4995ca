"""Identity is pinned by golden vectors and cannot be confused by moving characters between fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.events import body_identity
from kfm_pipelines.events.identity import auto_update_identity, s3_object_identity

text = st.text(st.characters(codec="utf-8"))
maybe_text = st.none() | text


def test_golden_vectors() -> None:
    """Each is `sha256sum` of the JSON beside it. Stored identities depend on them: never edit, add a rule version."""
    # ["kfm-s3-object-1","kfm-ingest","usgs/streamflow/a b.parquet","abc123","3Lg",1048576]
    assert s3_object_identity("kfm-ingest", "usgs/streamflow/a b.parquet", "abc123", "3Lg", 1048576) == (
        "90ca3a1090f642ba127962feba856116bc7af71a583378288fcfe3271f32a1bb"
    )
    # ["kfm-s3-object-1","kfm-ingest","usgs/streamflow/é.parquet",null,null,0]
    assert s3_object_identity("kfm-ingest", "usgs/streamflow/é.parquet", None, None, 0) == (
        "5f95bfd14afe7afe7a2f254a42061c301e81536c02d0d015fad7e9f578acce52"
    )
    # ["kfm-auto-update-1","usgs/streamflow","s3://kfm-ingest/usgs/streamflow/f.parquet","W/\"a1b2c3\""]
    assert auto_update_identity("usgs/streamflow", "s3://kfm-ingest/usgs/streamflow/f.parquet", 'W/"a1b2c3"') == (
        "771b775a0b2af9bb9abb9561143d9cfe50a46cb0cb01082d4ea131f6e56afb5e"
    )
    # ["kfm-body-1","<sha256 of the bytes>"]
    assert body_identity(b"not json") == "732048402e7abb7cdbf9128026952a7da29a23e9ac53a6add7a13a063c3ba2ca"


@pytest.mark.parametrize("absent", [None, "", "null"])
def test_an_absent_version_is_one_thing_however_it_is_written(absent: str | None) -> None:
    assert s3_object_identity("b", "k", "e", absent, 1) == s3_object_identity("b", "k", "e", None, 1)


def test_absent_etag_and_version_do_not_change_places() -> None:
    assert s3_object_identity("b", "k", "x", None, 1) != s3_object_identity("b", "k", None, "x", 1)
    assert s3_object_identity("b", "k", "", None, 1) == s3_object_identity("b", "k", None, None, 1)


@given(st.tuples(text, text.filter(bool), text))
def test_cutting_the_same_characters_elsewhere_is_another_event(parts: tuple[str, str, str]) -> None:
    joined, cut, other = "".join(parts), len(parts[0]), len(parts[0]) + len(parts[1])
    assert auto_update_identity(joined[:cut], joined[cut:], "e") != auto_update_identity(
        joined[:other], joined[other:], "e"
    )
    assert s3_object_identity(joined[:cut], joined[cut:], None, None, 1) != (
        s3_object_identity(joined[:other], joined[other:], None, None, 1)
    )


@given(st.tuples(text, text, text), st.tuples(text, text, text))
def test_two_events_share_an_identity_only_when_all_fields_agree(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (auto_update_identity(*one) == auto_update_identity(*other)) == (one == other)


@given(text, text, text)
def test_the_rules_never_collide(a: str, b: str, c: str) -> None:
    rules = {auto_update_identity(a, b, c), s3_object_identity(a, b, c, None, 0), body_identity((a + b + c).encode())}
    assert len(rules) == 3
