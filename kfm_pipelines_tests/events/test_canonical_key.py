"""The canonical key: golden vectors, and one sentence for anything that is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.events import KEY_DERIVATION_VERSION, CanonicalKey, key_of, window_of
from kfm_pipelines_tests.fixtures.events.notices import NOON, declared

part = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
h3_res = st.sampled_from(["none", *map(str, range(16))])


def test_golden_key_of_a_declared_dataset() -> None:
    """A change of this text moves every key: raise KEY_DERIVATION_VERSION and say so in the changelog."""
    key = key_of(declared()["usgs/streamflow"], window_of(NOON, "hour"))
    assert (KEY_DERIVATION_VERSION, str(key)) == (1, "usgs-streamflow:kansas_statewide:none:2025-12-04T12Z:v1-0-0")


@given(st.builds(CanonicalKey, part, part, h3_res, part, part))
def test_a_key_reads_back_as_written(key: CanonicalKey) -> None:
    assert CanonicalKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 parts; five are needed"),
        ("a:b:none:c", "4 parts"),
        ("a:b:none:c:d:e", "6 parts"),
        ("a:b:none:c:", "transform_version must be"),
        ("a.b:b:none:c:d", "source must be"),
        ("a:b/c:none:c:d", "aoi must be"),
        ("a:b:none:2025-12-07T00:00Z:d", "6 parts"),
        ("a:b:none:c:d\n", "transform_version must be"),
        ("a:b:none\n:c:d", "h3_res must be"),
        ("a:b:16:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:07:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:None:c:d", "h3_res must be none or 0 to 15"),
        ("a:b:٣:c:d", "h3_res must be"),
        ("é:b:none:c:d", "source must be"),
    ],
)
def test_what_is_no_key_is_refused_with_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(KeyInvalid, match=reason) as refusal:
        CanonicalKey.parse(text)
    assert str(refusal.value).isprintable()
