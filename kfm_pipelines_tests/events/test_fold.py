"""Every notice finds its dataset, window and key by the declarations, or is refused."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_datasets
from kfm_pipelines.errors import ContractBroken, DatasetUnknown, DeclarationInvalid, LocationUndeclared, MessageRefused
from kfm_pipelines.events import IngestEvent, PayloadNotice, member_of_key, resolve_event, resolve_events
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.events.messages import SOURCE
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


def with_window(window: str, pattern: str, **key: str) -> Datasets:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["key"] |= {"window": window, **key}
    document["input"]["object_pattern"] = pattern
    return Datasets({"usgs/streamflow": Dataset.model_validate(document)})


@pytest.mark.parametrize(
    ("window", "pattern", "label"),
    [
        ("day", r"usgs/streamflow/(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)", "2025-12-04"),
        ("week", r"usgs/streamflow/(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)", "2025-W49"),
        ("week", r"usgs/streamflow/(?P<year>\d+)-(?P<week>\d+)-\d+", "2025-W12"),
        ("month", r"usgs/streamflow/(?P<year>\d+)-(?P<month>\d+)-\d+", "2025-12"),
        ("year", r"usgs/streamflow/(?P<year>\d+)-\d+-\d+", "2025"),
    ],
)
def test_longer_windows_fold_the_same_way(window: str, pattern: str, label: str) -> None:
    folded = resolve_event(notice(object_key="usgs/streamflow/2025-12-04"), with_window(window, pattern))
    assert folded.key == f"usgs-streamflow:kansas_statewide:none:{label}:v1-0-0"


BY_TILE = r"usgs/streamflow/(?P<tile>[^/]*)/(?P<year>\d+)"


def test_each_tile_of_a_window_has_a_key_of_its_own() -> None:
    by_tile = with_window("year", BY_TILE, fold_by="tile")
    paths = [f"usgs/streamflow/{tile}/2025" for tile in ("14SPH", "14sph", "15S")]
    keys = [resolve_event(notice(object_key=path), by_tile).key for path in paths]
    assert keys == [f"usgs-streamflow:kansas_statewide-{tile}:none:2025:v1-0-0" for tile in ("14sph", "14sph", "15s")]
    assert [member_of_key(by_tile["usgs/streamflow"], key) for key in keys] == ["14sph", "14sph", "15s"]


@pytest.mark.parametrize("tile", ["", "a-b", "a:b", "x" * 41, "é"])
def test_a_tile_that_cannot_be_part_of_a_key_is_refused(tile: str) -> None:
    with pytest.raises(LocationUndeclared, match="tile must be 1 to 40 letters"):
        resolve_event(notice(object_key=f"usgs/streamflow/{tile}/2025"), with_window("year", BY_TILE, fold_by="tile"))


def test_a_fold_needs_its_group_in_the_pattern() -> None:
    with pytest.raises(ValueError, match=r"key.fold_by: input.object_pattern has no group \(\?P<county>"):
        with_window("year", BY_TILE, fold_by="county")


COUNTIES = {"column": "site_no", "members": {"20161": "Riley", "20061": "geary", "20061A": "geary"}}


def split_into(**split: Any) -> Datasets:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["key"]["split_by"] = split
    return Datasets({"usgs/streamflow": Dataset.model_validate(document)}, shipped_path("resources"))


def test_an_object_that_is_split_is_an_event_for_each_member() -> None:
    datasets = split_into(**COUNTIES)
    whole = notice(sequencer="00AB", change="deleted", version_id="v1")
    events = resolve_events(whole, datasets)
    hour = "none:2025-12-04T03Z:v1-0-0"
    assert [one.key for one in events] == [f"usgs-streamflow:kansas_statewide-{m}:{hour}" for m in ("geary", "riley")]
    assert [member_of_key(datasets["usgs/streamflow"], one.key) for one in events] == ["geary", "riley"]
    # `["kfm-member-1","aaa…","geary"]` and its sha256sum.
    assert [one.identity for one in events] == [
        "a7168cdfec6f39a43fc9a3f914a0f9f33f9214335d473e23f90c29b6dfed26fa",
        "baeca2a3212f3ef9d1b6bdc5fa936a5cf7031bc318cb364a7c4edcfea3f925a8",
    ]
    assert {one.notice_identity for one in events} == {"a" * 64}
    for one in events:
        assert (one.asset_uri, one.sequencer, one.change, one.version_id) == (
            whole.asset_uri, "00AB", "deleted", "v1",
        )  # fmt: skip


def test_an_object_that_is_not_split_is_one_event() -> None:
    [one] = resolve_events(notice(), declared())
    assert one == event()
    assert one.notice_identity == one.identity == "a" * 64


def test_cells_are_members_like_others() -> None:
    events = resolve_events(notice(), split_into(h3_res=1))
    assert len(events) == len({one.identity for one in events}) == 4
    assert events[0].key.startswith("usgs-streamflow:kansas_statewide-8")


def test_cells_that_cannot_be_had_refuse_the_message_only(tmp_path: Path) -> None:
    lost = Datasets(dict(split_into(h3_res=1)), tmp_path)
    with pytest.raises(MessageRefused, match=r"objects of usgs/streamflow cannot be split: .*there is no area"):
        resolve_events(notice(), lost)


def test_keys_of_two_datasets_cannot_collide_through_a_fold(tmp_path: Path) -> None:
    folder = tmp_path / "datasets"
    folder.mkdir()
    document = with_window("year", BY_TILE, fold_by="tile")["usgs/streamflow"].model_dump(mode="json")
    other = {**document, "dataset": "usgs/tiles", "key": {**document["key"], "aoi": "kansas_statewide-14sph"}}
    other["input"] = {**document["input"], "prefix": "usgs/tiles/"}
    for name, one in (("a", document), ("b", other)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(one))
    with pytest.raises(DeclarationInvalid, match="their keys would collide"):
        load_datasets(tmp_path)


@pytest.mark.parametrize("year", ["99999999999999999999", "9" * 500, "x", ""])
def test_a_careless_pattern_still_refuses_with_a_sentence(year: str) -> None:
    careless = with_window("month", r"usgs/streamflow/(?P<year>.*)-(?P<month>.*)")
    with pytest.raises(LocationUndeclared, match="has no window in its path") as refused:
        resolve_event(notice(object_key=f"usgs/streamflow/{year}-01"), careless)
    assert len(str(refused.value)) < 400


def test_an_event_keeps_every_field_of_its_notice() -> None:
    folded = event(priority="high", sequencer="00AB", version_id="v1", event_time=NOON)
    assert (folded.priority, folded.sequencer, folded.version_id, folded.event_time) == ("high", "00AB", "v1", NOON)


TEMPLATE = "usgs/streamflow/{event_time:%Y/%m/%d/%H}/{basin}-{gauge}.parquet"


def listening(object_key: str = TEMPLATE, **key: Any) -> dict[str, Any]:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["input"]["events"] = [{"source": SOURCE, "object_key": object_key}]
    document["key"] |= key
    return document


def datasets(object_key: str = TEMPLATE) -> Datasets:
    return Datasets({"usgs/streamflow": Dataset.model_validate(listening(object_key))})


def payload_notice(payload: dict[str, Any], **fields: Any) -> PayloadNotice:
    known: dict[str, Any] = {
        "shape": "fifo-envelope",
        "identity": "e" * 64,
        "event_source": SOURCE,
        "event_time": NOON,
        "priority": "high",
        "payload": payload,
    }
    return PayloadNotice(**(known | fields))


def folded(payload: dict[str, Any], object_key: str = TEMPLATE, **fields: Any) -> IngestEvent:
    return resolve_event(payload_notice(payload, **fields), datasets(object_key))


def test_the_template_names_the_object_and_the_object_its_window() -> None:
    event = folded({"basin": "kansas", "gauge": 6892350, "unused": "../.."})
    assert event.asset_uri == "s3://kfm-ingest/usgs/streamflow/2025/12/04/12/kansas-6892350.parquet"
    assert event.key == "usgs-streamflow:kansas_statewide:none:2025-12-04T12Z:v1-0-0"
    assert (event.dataset, event.identity, event.priority) == ("usgs/streamflow", "e" * 64, "high")
    assert (event.etag, event.version_id, event.size, event.sequencer, event.change) == (None,) * 4 + ("created",)
    assert event.event_time == NOON


def test_a_source_nobody_listens_to_is_named() -> None:
    with pytest.raises(LocationUndeclared, match=r"no declared dataset has 'kfm\.remote\.tiles' in its input\.events"):
        folded({}, event_source="kfm.remote.tiles")
    with pytest.raises(LocationUndeclared, match=SOURCE):
        resolve_event(payload_notice({}), declared())


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a b", "a\n", "é", "{basin}", "%Y", "a\\b", "\x1b[31m", None])
def test_a_value_may_not_leave_its_place_in_the_path(value: object) -> None:
    with pytest.raises(ContractBroken, match=r"payload\.basin .* must be a whole number or letters") as refusal:
        folded({"basin": value, "gauge": 1})
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ContractBroken, match=r"payload\.gauge of .* not None"):
        folded({"basin": "kansas"})


def test_an_object_the_pattern_does_not_foresee_is_refused() -> None:
    with pytest.raises(LocationUndeclared, match=r"does not match usgs/streamflow's input\.object_pattern"):
        folded({"basin": "kansas"}, "usgs/streamflow/{basin}.parquet")
    with pytest.raises(ContractBroken, match="must have 1 to 1024 bytes"):
        folded({"basin": "k" * 1100, "gauge": 1})


def test_the_payload_cannot_set_the_event_time() -> None:
    event = folded({"basin": "k", "gauge": 1, "event_time": "1999"}, event_time=datetime(2025, 1, 2, 3, tzinfo=UTC))
    assert "/2025/01/02/03/" in event.asset_uri


@given(st.dictionaries(st.sampled_from(["basin", "gauge", "event_time"]), st.text() | st.integers()))
@settings(deadline=None)
def test_any_payload_is_an_event_under_the_prefix_or_a_refusal(payload: dict[str, Any]) -> None:
    with suppress(MessageRefused):
        assert folded(payload).object_key.startswith("usgs/streamflow/2025/12/04/12/")


@pytest.mark.parametrize(
    "template",
    [
        "usgs/streamflow/{basin.__class__}",
        "usgs/streamflow/{basin[0]}",
        "usgs/streamflow/{event_time.year}",
        "usgs/streamflow/{event_time}",
        "usgs/streamflow/{event_time:%c}",
        "usgs/streamflow/{event_time:%Y%%}",
        "usgs/streamflow/{event_time:{basin}}",
        "usgs/streamflow/{basin!r}",
        "usgs/streamflow/{basin:>1000000}",
        "usgs/streamflow/{basin:{gauge}}",
        "usgs/streamflow/{}",
        "usgs/streamflow/{0}",
        "usgs/streamflow/{a-b}",
        "usgs/streamflow/{basin",
        "usgs/streamflow/basin}",
        "usgs/streamflow/{{basin}}",
        "usgs/streamflow/a b",
        "usgs/streamflow/é",
        "usgs/streamflow/a\n",
        "elsewhere/{basin}",
        "{basin}/streamflow/",
        "",
    ],
)
def test_a_template_can_name_fields_and_format_the_time_and_nothing_else(tmp_path: Path, template: str) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^a\.yaml: input") as refusal:
        load(tmp_path, listening(template))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([{"source": "landsat", "object_key": TEMPLATE}], r"input\.events\.0\.source: String should match"),
        ([{"source": SOURCE}], r"input\.events\.0\.object_key: Field required"),
        ([{"source": SOURCE, "object_key": TEMPLATE, "x": 1}], r"input\.events\.0\.x: Extra inputs"),
        ([{"source": SOURCE, "object_key": TEMPLATE}] * 2, "events has the same source twice"),
        ({}, r"input\.events: Input should be a valid list"),
    ],
)
def test_a_wrong_declaration_is_one_sentence(tmp_path: Path, events: object, reason: str) -> None:
    document = listening()
    document["input"]["events"] = events
    with pytest.raises(DeclarationInvalid, match=rf"^a\.yaml: .*{reason}"):
        load(tmp_path, document)


def test_two_datasets_may_not_listen_to_one_source(tmp_path: Path) -> None:
    other = listening("usda/soil/{basin}", source="usda-soil") | {"dataset": "usda/soil"}
    other["input"]["prefix"] = "usda/soil/"
    with pytest.raises(DeclarationInvalid, match=rf"^b\.yaml: input\.events: {SOURCE} already belongs to 'usgs"):
        load(tmp_path, listening(), other)
    other["input"]["events"][0]["source"] = "kfm.soil.survey"
    assert len(load(tmp_path, listening(), other)) == 2


def test_listening_changes_no_published_bytes() -> None:
    assert datasets()["usgs/streamflow"].digest == declared()["usgs/streamflow"].digest


def load(folder: Path, *documents: dict[str, Any]) -> Datasets:
    (folder / "datasets").mkdir(exist_ok=True)
    for name, document in zip("ab", documents, strict=False):
        (folder / "datasets" / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_datasets(folder)
