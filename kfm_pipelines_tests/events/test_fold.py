"""A notice folds into the key its dataset declares, or is refused with one sentence saying why not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ContractBroken, DatasetUnknown, LocationUndeclared, MessageRefused
from kfm_pipelines.events import resolve_event
from kfm_pipelines_tests.fixtures.events.notices import KEY_AT_03, NOON, declared, event, notice

AT_03 = datetime(2025, 12, 4, 3, tzinfo=UTC)
STREAMFLOW = {"dataset": "usgs/streamflow", "object_key": "usgs/streamflow/anything.parquet"}


def test_an_s3_event_takes_dataset_and_window_from_its_path() -> None:
    folded = event()
    assert folded.dataset == "usgs/streamflow"
    assert folded.key == "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0"
    assert (folded.window_start, folded.window_end) == (AT_03, AT_03 + timedelta(hours=1))
    assert (folded.identity, folded.etag, folded.asset_uri) == ("a" * 64, "abc123", f"s3://kfm-ingest/{KEY_AT_03}")


def test_a_named_dataset_takes_the_window_from_the_granule() -> None:
    folded = event(**STREAMFLOW, granule_start=AT_03, granule_end=AT_03 + timedelta(minutes=59, seconds=59))
    assert folded.key == event().key


def test_many_events_fold_into_one_key() -> None:
    paths = [f"usgs/streamflow/2025/12/04/03/part-{number}.parquet" for number in range(5)]
    assert len({event(object_key=path).key for path in paths}) == 1


def test_a_named_dataset_without_granule_takes_the_window_from_its_path() -> None:
    assert event(dataset="usgs/streamflow").key == event().key
    with pytest.raises(LocationUndeclared, match="object_pattern"):
        event(**STREAMFLOW)


@pytest.mark.parametrize("end", [AT_03, AT_03 + timedelta(hours=1)])
def test_a_granule_may_be_an_instant_or_end_where_its_window_ends(end: datetime) -> None:
    assert event(**STREAMFLOW, granule_start=AT_03, granule_end=end).window_start == AT_03


@pytest.mark.parametrize(
    ("fields", "refusal", "reason"),
    [
        ({"dataset": "nobody/knows"}, DatasetUnknown, "'nobody/knows' is not declared"),
        (
            {"dataset": "usgs/streamflow", "bucket": "elsewhere"},
            LocationUndeclared,
            "is not under s3://kfm-ingest/usgs",
        ),
        (
            {"dataset": "usgs/streamflow", "object_key": "soil/f.parquet"},
            LocationUndeclared,
            "is not under s3://kfm-in",
        ),
        ({"bucket": "elsewhere"}, LocationUndeclared, "of any declared dataset"),
        ({"object_key": "usgs/streamflow-2/2025/12/04/03/f.parquet"}, LocationUndeclared, "of any declared dataset"),
        ({"object_key": f"x/{KEY_AT_03}"}, LocationUndeclared, "of any declared dataset"),
        ({"object_key": f"{KEY_AT_03}.tmp"}, LocationUndeclared, "object_pattern"),
        ({"object_key": f"{KEY_AT_03}\n"}, LocationUndeclared, "object_pattern"),
        ({"object_key": KEY_AT_03.replace("2025", "٢٠٢٥")}, LocationUndeclared, "object_pattern"),
        ({"object_key": KEY_AT_03.replace("/12/", "/13/")}, LocationUndeclared, "has no window in its path: month"),
        ({"object_key": KEY_AT_03.replace("/04/", "/32/")}, LocationUndeclared, "has no window in its path: day"),
        ({"object_key": KEY_AT_03.replace("/03/", "/24/")}, LocationUndeclared, "has no window in its path: hour"),
        ({"object_key": KEY_AT_03.replace("2025", "0000")}, LocationUndeclared, "has no window in its path: year"),
        ({"object_key": "usgs/streamflow/9999/12/31/23/f.parquet"}, LocationUndeclared, "beyond the calendar"),
        ({"size": 268435457}, ContractBroken, "has 268435457 bytes; usgs/streamflow takes at most 268435456"),
        (
            STREAMFLOW | {"granule_start": AT_03, "granule_end": AT_03 - timedelta(seconds=1)},
            ContractBroken,
            "is before granule_start",
        ),
        (
            STREAMFLOW | {"granule_start": AT_03, "granule_end": AT_03 + timedelta(hours=1, microseconds=1)},
            ContractBroken,
            "beyond its window 2025-12-04T03Z",
        ),
        (
            STREAMFLOW | {"granule_start": datetime(9999, 12, 31, 23, 30, tzinfo=UTC)},
            ContractBroken,
            "beyond the calendar",
        ),
    ],
)
def test_what_no_dataset_may_take_is_refused(
    fields: dict[str, Any], refusal: type[MessageRefused], reason: str
) -> None:
    with pytest.raises(refusal, match=reason) as refused:
        event(**fields)
    assert str(refused.value).isprintable()


def test_an_object_of_exactly_the_largest_size_passes() -> None:
    assert event(size=268435456).size == 268435456


def with_window(window: str, pattern: str) -> Datasets:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["key"]["window"], document["input"]["object_pattern"] = window, pattern
    return Datasets({"usgs/streamflow": Dataset.model_validate(document)})


@pytest.mark.parametrize(
    ("window", "pattern", "label"),
    [
        ("day", r"usgs/streamflow/(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)", "2025-12-04"),
        ("month", r"usgs/streamflow/(?P<year>\d+)-(?P<month>\d+)-\d+", "2025-12"),
    ],
)
def test_days_and_months_fold_the_same_way(window: str, pattern: str, label: str) -> None:
    folded = resolve_event(notice(object_key="usgs/streamflow/2025-12-04"), with_window(window, pattern))
    assert folded.key == f"usgs-streamflow:kansas_statewide:none:{label}:v1-0-0"


@pytest.mark.parametrize("year", ["99999999999999999999", "9" * 500, "x", ""])
def test_a_careless_pattern_still_refuses_with_a_sentence(year: str) -> None:
    careless = with_window("month", r"usgs/streamflow/(?P<year>.*)-(?P<month>.*)")
    with pytest.raises(LocationUndeclared, match="has no window in its path") as refused:
        resolve_event(notice(object_key=f"usgs/streamflow/{year}-01"), careless)
    assert len(str(refused.value)) < 400


def test_folding_keeps_what_the_notice_said() -> None:
    folded = event(priority="high", sequencer="00AB", version_id="v1", event_time=NOON)
    assert (folded.priority, folded.sequencer, folded.version_id, folded.event_time) == ("high", "00AB", "v1", NOON)
