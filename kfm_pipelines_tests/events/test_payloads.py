"""Events that name no object: a dataset declares which one they mean, in a language that can do nothing else."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_datasets
from kfm_pipelines.errors import ContractBroken, DeclarationInvalid, LocationUndeclared, MessageRefused
from kfm_pipelines.events import IngestEvent, PayloadNotice, resolve_event
from kfm_pipelines_tests.fixtures.events.messages import SOURCE
from kfm_pipelines_tests.fixtures.events.notices import NOON, declared

TEMPLATE = "usgs/streamflow/{event_time:%Y/%m/%d/%H}/{basin}-{gauge}.parquet"


def listening(object_key: str = TEMPLATE, **key: Any) -> dict[str, Any]:
    document = declared()["usgs/streamflow"].model_dump(mode="json")
    document["input"]["events"] = [{"source": SOURCE, "object_key": object_key}]
    document["key"] |= key
    return document


def datasets(object_key: str = TEMPLATE) -> Datasets:
    return Datasets({"usgs/streamflow": Dataset.model_validate(listening(object_key))})


def notice(payload: dict[str, Any], **fields: Any) -> PayloadNotice:
    said: dict[str, Any] = {
        "shape": "fifo-envelope",
        "identity": "e" * 64,
        "event_source": SOURCE,
        "event_time": NOON,
        "priority": "high",
        "payload": payload,
    }
    return PayloadNotice(**(said | fields))


def folded(payload: dict[str, Any], object_key: str = TEMPLATE, **fields: Any) -> IngestEvent:
    return resolve_event(notice(payload, **fields), datasets(object_key))


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
        resolve_event(notice({}), declared())


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


def test_the_payload_cannot_say_when_it_was() -> None:
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
