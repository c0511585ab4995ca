"""Messages as their senders really write them, kept beside the checkout and not in it."""

from pathlib import Path

import pytest

from kfm_pipelines.errors import LocationUndeclared, ShapeUnknown
from kfm_pipelines.events import fold, normalise
from kfm_pipelines_tests.events.given import declared

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="real sample messages are not on this machine")


def read(name: str) -> bytes:
    return (SAMPLES / f"{name}.json").read_bytes()


def test_an_s3_notification_wrapped_by_sns() -> None:
    (notice,) = normalise(read("nexrad-level2-sns-wrapped-s3"))
    assert notice.asset_uri == "s3://unidata-nexrad-level2-chunks/KDAX/734/20151228-200051-001-S"
    assert (notice.size, notice.sequencer) == (11714, "00568194F4F94A44B5")
    with pytest.raises(LocationUndeclared):
        fold(notice, declared())


def test_an_auto_update_message() -> None:
    (notice,) = normalise(read("auto-update-v1"))
    assert (notice.dataset, notice.etag, notice.priority) == ("usgs/streamflow", "a1b2c3", "high")


def test_the_test_event_of_s3() -> None:
    assert normalise(read("s3-test-event")) == ()


@pytest.mark.parametrize("name", ["fifo-envelope"])
def test_shapes_not_yet_listened_to_are_refused(name: str) -> None:
    with pytest.raises(ShapeUnknown, match="top-level fields"):
        normalise(read(name))
