"""Declarations are checked in full: a good one loads, a wrong one is one sentence naming file and field."""

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rfc8785
import yaml

from kfm_pipelines.declarations.dataset import Dataset, load_dataset, load_datasets
from kfm_pipelines.errors import DatasetUnknown, DeclarationInvalid
from kfm_pipelines.operations.canary.candidate import candidate_paths
from kfm_pipelines.settings import shipped_path

SHIPPED = shipped_path("resources") / "datasets" / "usgs-streamflow.yaml"
Declare = Callable[..., Path]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Writes the shipped declaration with some fields changed, given as `input.bucket`; `...` takes one out."""
    (tmp_path / "datasets").mkdir()

    def write(name: str, **changes: object) -> Path:
        document: dict[str, Any] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
        for dotted, value in changes.items():
            *parents, last = dotted.split(".")
            place = document
            for parent in parents:
                place = place[parent]
            if value is ...:
                del place[last]
            else:
                place[last] = value
        path = tmp_path / "datasets" / name
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    return write


def soil(**changes: object) -> dict[str, object]:
    """Enough changes to make the shipped declaration another dataset."""
    return {
        "dataset": "usda/soil",
        "key.source": "usda-soil",
        "input.prefix": "usda/soil/",
    } | changes


def limited(*limits: tuple[str, int]) -> dict[str, object]:
    return {"concurrency": {"limits": [{"prefix": prefix, "runs": runs} for prefix, runs in limits]}}


def test_the_shipped_declarations_load() -> None:
    datasets = load_datasets(shipped_path("resources"))
    streamflow = datasets["usgs/streamflow"]
    assert list(datasets) == sorted(datasets)
    assert (streamflow.pipeline, streamflow.key.window, streamflow.policy) == (
        "usgs-streamflow",
        "hour",
        "not-sensitive",
    )


def test_what_is_kept_of_a_declaration_is_that_declaration() -> None:
    declared = load_datasets(shipped_path("resources"))
    for one in (*declared.values(), *map(load_dataset, candidate_paths(shipped_path("resources")))):
        kept = Dataset.model_validate_json(json.dumps(one.model_dump(mode="json")))
        assert (kept, kept.digest) == (one, one.digest)


@pytest.mark.parametrize("written", ["0 s", "90 s", "90 min", "31 h", "62 d", "36525 d", "999999999 s"])
def test_a_duration_is_read_as_it_is_written(declare: Declare, written: str) -> None:
    dataset = load_dataset(declare("a.yaml", watermark={"out_of_order": written}))
    kept = Dataset.model_validate_json(json.dumps(dataset.model_dump(mode="json")))
    assert kept.watermark == dataset.watermark
    short = dataset.model_dump(mode="json")["watermark"]["out_of_order"]
    assert short == ("0 d" if written == "0 s" else written)


def test_looking_up_an_undeclared_dataset_names_the_declared_ones() -> None:
    datasets = load_datasets(shipped_path("resources"))
    assert "usgs/nothing" not in datasets
    with pytest.raises(DatasetUnknown, match=r"'usgs/nothing' is not declared; declared: .*usgs/streamflow"):
        datasets["usgs/nothing"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"colour": "red"}, r"colour: Extra inputs are not permitted"),
        ({"input.colour": "red"}, r"input\.colour: Extra inputs are not permitted"),
        ({"transform": "guess"}, r"transform: Input should be 'metric_discharge' or 'drought_streamflow', not 'guess'"),
        ({"title": ...}, r"title: Field required"),
        ({"slo": {"freshness": "59 s"}}, r"slo\.freshness: must be at least 1 min"),
        (
            {"watermark.out_of_order": "soon"},
            r"watermark\.out_of_order: must be a number and a unit, .*, not 'soon'",
        ),
        ({"watermark.out_of_order": "36526 d"}, r"watermark\.out_of_order: must be at most 36525 d, not '36526 d'"),
        ({"watermark.idle_after": 3}, r"watermark\.idle_after: must be a number and a unit, .*, not 3"),
        ({"watermark.skew": "-1 h"}, r"watermark\.skew: must be a number and a unit, .*, not '-1 h'"),
        ({"watermark.partition": "site"}, r"watermark\.partition: input\.object_pattern has no group \(\?P<site>…\)$"),
        ({"due.when": "on_close"}, r"due: wait must be set, or a key could wait for ever$"),
        ({"due.events": 5}, r"due: wait must be set, or a key could wait for ever$"),
        ({"due.wait": "1 h"}, r"due: wait needs events: more than 1; with one event nothing waits$"),
        ({"late": "ignore"}, r"late: Input should be 'patch', 'replay' or 'quarantine', not 'ignore'"),
        ({"title": 5}, r"title: Input should be a valid string, not 5"),
        ({"input.max_bytes": "1"}, r"input\.max_bytes: Input should be a valid integer, not '1'"),
        ({"input.max_bytes": 0}, r"input\.max_bytes: Input should be greater than 0, not 0"),
        ({"input.bucket": "Not_A_Bucket"}, r"input\.bucket: String should match pattern"),
        ({"input.prefix": "/usgs/"}, r"input\.prefix: String should match pattern"),
        ({"input.prefix": "usgs"}, r"input\.prefix: String should match pattern"),
        ({"input.object_pattern": "("}, r"input\.object_pattern: is not a regular expression"),
        ({"input.object_pattern": r"(?P<year>\d+)/(?P<month>\d+)/(?P<day>\d+)"}, r"input\.object_pattern needs .*hour"),
        ({"input.format": "xls"}, r"input\.format: Input should be 'parquet', 'csv', .* not 'xls'"),
        ({"input.timezone": "Kansas"}, r"input\.timezone: is not a time zone"),
        ({"input.csv": {"delimiter": ",,"}}, r"input\.csv\.delimiter: String should match pattern"),
        ({"key.window": "decade"}, r"key\.window: Input should be 'hour', 'day', .* or 'year', not 'decade'"),
        ({"key.source": "a.b"}, r"key\.source: String should match pattern"),
        ({"key.aoi": "kansas\n"}, r"key\.aoi: String should match pattern"),
        ({"key.h3_res": "16"}, r"key\.h3_res: String should match pattern"),
        ({"key.h3_res": 7}, r"key\.h3_res: Input should be a valid string, not 7"),
        ({"dataset": "streamflow"}, r"dataset: String should match pattern"),
        ({"owners": []}, r"owners: List should have at least 1 item"),
        ({"table.primary_key": ["nothing"]}, r"table: 'nothing' is not one of the columns site_no"),
        ({"table.primary_key": []}, r"table\.primary_key: List should have at least 1 item"),
        ({"table.time_column": "when"}, r"table: 'when' is not one of the columns"),
        ({"table.longitude_column": "lon"}, r"table: 'lon' is not one of the columns"),
        ({"table.columns": []}, r"table\.columns: List should have at least 1 item"),
        ({"quality.nulls": [{"column": "qualifier"}]}, r"quality\.nulls\.0: needs warn_above, error_above or both"),
        ({"concurrency": {"serial": "yes"}}, r"concurrency\.serial: Input should be a valid boolean, not 'yes'"),
        ({"concurrency": {"parallel": True}}, r"concurrency\.parallel: Extra inputs are not permitted"),
        (limited(("usgs-streamflow:", 0)), r"concurrency\.limits\.0\.runs: Input should be greater than or equal to 1"),
        (limited(("usgs-streamflow:", 9)), r"concurrency\.limits\.0\.runs: Input should be less than or equal to 8"),
        (limited(("usgs.", 1)), r"concurrency\.limits\.0\.prefix: String should match pattern"),
        (limited(("", 1)), r"concurrency\.limits\.0\.prefix: String should match pattern"),
        (limited(("usgs-", 1), ("usgs-s", 2)), r"concurrency: limits: prefix 'usgs-s' lies within 'usgs-'"),
        (limited(("usgs-", 1), ("usgs-", 2)), r"concurrency: limits: prefix 'usgs-' lies within 'usgs-'"),
        (limited(("usgs-streamflow:ohio", 1)), r"concurrency\.limits: no key of .* begins with 'usgs-streamflow:ohio'"),
    ],
)
def test_a_wrong_field_is_one_sentence_naming_file_and_field(
    declare: Declare, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(DeclarationInvalid, match=rf"^wrong\.yaml: .*{reason}") as refusal:
        load_dataset(declare("wrong.yaml", **changes))
    assert "\n" not in str(refusal.value)


def test_a_column_may_not_appear_twice(declare: Declare) -> None:
    columns = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["table"]["columns"]
    with pytest.raises(DeclarationInvalid, match=r"wrong\.yaml: table: columns has the same name twice"):
        load_dataset(declare("wrong.yaml", **{"table.columns": [*columns, columns[0]]}))


@pytest.mark.parametrize(
    ("changes", "column", "reason"),
    [
        ({"table.geometry_column": ...}, {}, "'geometry' is derived, so it must be the geometry_column"),
        (
            {"table.longitude_column": ..., "table.latitude_column": ...},
            {},
            "which needs longitude_column and lat",
        ),
        ({}, {"source": "geom"}, "'geometry' is derived, so it cannot have a source"),
        ({}, {"nullable": True}, "'geometry' must have nullable: false, like the columns it is derived from"),
        ({"table.primary_key": ["geometry"]}, {}, "'geometry' is derived, so it cannot be in the primary_key"),
        ({}, {"derived": "area"}, r"table\.columns\.8\.derived: Input should be 'point'"),
    ],
)
def test_a_derived_column_follows_from_two_others(
    declare: Declare, changes: dict[str, object], column: dict[str, object], reason: str
) -> None:
    *columns, geometry = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["table"]["columns"]
    assert load_dataset(SHIPPED).table.derived_column == load_dataset(SHIPPED).table.column("geometry")
    with pytest.raises(DeclarationInvalid, match=rf"wrong\.yaml: .*{reason}"):
        load_dataset(declare("wrong.yaml", **changes, **{"table.columns": [*columns, {**geometry, **column}]}))


def test_several_mistakes_are_counted(declare: Declare) -> None:
    with pytest.raises(DeclarationInvalid, match=r"\(and 1 more\)$"):
        load_dataset(declare("wrong.yaml", title=..., description=...))


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", b"a: 1\n b: 2\n", b"!!python/object:os.system {}"])
def test_what_is_not_yaml_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_bytes(content)
    with pytest.raises(DeclarationInvalid, match=r"^wrong\.yaml: is not YAML") as refusal:
        load_dataset(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", ["", "just text", "- a\n- b\n"])
def test_yaml_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DeclarationInvalid, match=r"^wrong\.yaml: declaration: "):
        load_dataset(path)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^gone\.yaml: cannot be read: No such file"):
        load_dataset(tmp_path / "gone.yaml")


def test_two_datasets_that_agree_load(declare: Declare, tmp_path: Path) -> None:
    declare("a.yaml")
    declare("b.yaml", **soil())
    assert list(load_datasets(tmp_path)) == ["usda/soil", "usgs/streamflow"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, r"dataset 'usgs/streamflow' is declared twice"),
        (soil(**{"key.source": "usgs-streamflow"}), r"key\.source and key\.aoi are the same as in 'usgs/streamflow'"),
        (soil(**{"input.prefix": "usgs/streamflow/"}), r"input\.prefix overlaps that of 'usgs/streamflow'"),
        (soil(**{"input.prefix": "usgs/"}), r"input\.prefix overlaps that of 'usgs/streamflow'"),
        (soil(**{"input.prefix": "usgs/streamflow/daily/"}), r"input\.prefix overlaps that of 'usgs/streamflow'"),
    ],
)
def test_two_datasets_that_claim_the_same_are_refused(
    declare: Declare, tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    declare("a.yaml")
    declare("b.yaml", **changes)
    with pytest.raises(DeclarationInvalid, match=rf"^b\.yaml: .*{reason}"):
        load_datasets(tmp_path)


def test_two_names_that_are_one_path_segment_are_refused(declare: Declare, tmp_path: Path) -> None:
    declare("a.yaml", dataset="a-b/c")
    declare("b.yaml", **soil(dataset="a/b-c"))
    with pytest.raises(DeclarationInvalid, match=r"^b\.yaml: dataset 'a/b-c' is declared twice"):
        load_datasets(tmp_path)


def test_two_buckets_may_use_one_prefix(declare: Declare, tmp_path: Path) -> None:
    declare("a.yaml")
    declare("b.yaml", **soil(**{"input.prefix": "usgs/streamflow/", "input.bucket": "kfm-other"}))
    assert len(load_datasets(tmp_path)) == 2


def load(declare: Declare, **changes: object) -> Dataset:
    return load_dataset(declare("one.yaml", **changes))


def test_the_digest_changes_with_what_shapes_the_bytes_only(declare: Declare) -> None:
    digest = load(declare).digest
    assert load(declare, description="Other words", owners=["team:other"]).digest == digest
    assert load(declare, title="Another title").digest != digest
    assert load(declare, **{"input.max_bytes": 5}).digest == digest
    assert load(declare, concurrency={"serial": True}).digest == digest
    assert load(declare, **{"key.transform_version": "v2-0-0"}).digest != digest
    assert load(declare, policy="another").digest != digest
    assert load(declare, **{"table.primary_key": ["site_no"]}).digest != digest
    assert load(declare, transform="metric_discharge").digest != digest
    assert load(declare, canary={"transform_version": "v2", "fraction": 0.5}).digest == digest
    assert load(declare, slo={"freshness": "1 h"}).digest == digest


def test_who_names_no_transform_or_rule_has_the_digest_of_before_there_were_any(declare: Declare) -> None:
    """Otherwise every published key would be computed again."""
    plain = {"table.on_conflict": ..., "table.order_by": ..., "table.outside_window": ..., "input.formats": ...}
    dataset = load(declare, **plain)
    shapes = {"dataset", "title", "key", "processor", "policy", "sovereignty", "extent", "table", "licence"}
    shaping = dataset.model_dump(mode="json", include=shapes)
    assert "transform" not in shaping
    for rule in ("on_conflict", "order_by", "revision_column", "outside_window"):
        del shaping["table"][rule]
    for rule in ("fold_by", "split_by"):
        del shaping["key"][rule]
    assert dataset.digest == hashlib.sha256(rfc8785.dumps(shaping)).hexdigest()


def test_the_product_is_the_part_after_the_slash_unless_declared(declare: Declare) -> None:
    plain = load_dataset(declare("one.yaml"))
    assert plain.product == "streamflow"
    named = load_dataset(declare("two.yaml", product="gauges"))
    assert named.product == "gauges"
    assert named.digest == plain.digest  # how messages are routed shapes no bytes
    with pytest.raises(DeclarationInvalid, match="product: "):
        load_dataset(declare("three.yaml", product="two words"))


def test_a_wrong_name_is_one_mistake_not_two(declare: Declare) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^one.yaml: dataset: .*'USGS/flow'$"):
        load_dataset(declare("one.yaml", dataset="USGS/flow"))


def test_nobody_waits_for_a_dataset_that_promises_no_freshness(declare: Declare) -> None:
    assert load(declare, slo={}).slo.freshness is None
    assert load(declare, slo={"freshness": "90 min"}).slo.freshness == timedelta(minutes=90)


def test_nothing_is_limited_unless_declared(declare: Declare) -> None:
    concurrency = load(declare).concurrency
    assert not concurrency.serial
    assert concurrency.limit_of("usgs-streamflow:kansas_statewide:none:2025-12-04T00Z:v1-0-0") is None


def test_a_key_is_under_the_limit_of_its_prefix(declare: Declare) -> None:
    year = "usgs-streamflow:kansas_statewide:none:2025"
    concurrency = load(declare, **limited((f"{year}-11", 8), (f"{year}-12", 1))).concurrency
    found = [concurrency.limit_of(f"{year}-{month}-04T00Z:v1-0-0") for month in (10, 11, 12)]
    assert [limit and limit.runs for limit in found] == [None, 8, 1]
