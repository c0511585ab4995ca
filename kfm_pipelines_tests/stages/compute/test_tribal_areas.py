"""Drought by tribal area: the weekly files are read as their publisher writes them; nothing is lost, no place added."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm_pipelines.care.policies import load_policy, refuse_if_mismatched
from kfm_pipelines.declarations.tables import declared_schema
from kfm_pipelines.errors import LocationUndeclared
from kfm_pipelines.gates import Verdict, judge_schema
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.stages.compute.result import SourceObject
from kfm_pipelines.stages.compute.table import compute
from kfm_pipelines.stages.publish.stage import bounding_box
from kfm_pipelines_tests.fixtures.events.notices import declared, event
from kfm_pipelines_tests.fixtures.gates.subjects import subject_of
from kfm_pipelines_tests.fixtures.real_files import TRIBAL_AREAS, need_tribal_areas

DATASET = declared()["drought/tribal-areas"]


def object_key(name: str) -> str:
    day = date.fromisoformat(name.removeprefix("USDM_").removesuffix(".parquet"))
    return f"drought/tribal-areas/{day:%Y/%m/%d}/{name}"


def judged(name: str, data: bytes) -> tuple[pa.Table, Verdict]:
    """The object as an event about it would have it computed and judged."""
    folded = event(object_key=object_key(name))
    table = compute(DATASET, [SourceObject(folded.asset_uri, data)]).table
    window = (folded.window_start, folded.window_end)
    return table, judge_schema(subject_of(table, DATASET, window))


@need_tribal_areas
@pytest.mark.parametrize("path", TRIBAL_AREAS, ids=lambda path: path.stem)
def test_a_real_file_is_read_as_it_is(path: Path) -> None:
    table, verdict = judged(path.name, path.read_bytes())

    assert (verdict.passed, verdict.findings) == (True, ())
    original = pq.read_table(path)
    assert table.num_rows == original.num_rows > 200
    declared_names = {column.source: column.name for column in DATASET.table.columns}
    renamed = original.rename_columns([declared_names[name] for name in original.column_names])
    order = [*DATASET.table.primary_key, *table.column_names]
    assert len({tuple(row[name] for name in DATASET.table.primary_key) for row in table.to_pylist()}) == table.num_rows
    assert table.to_pylist() == renamed.sort_by([(name, "ascending") for name in dict.fromkeys(order)]).to_pylist()


@need_tribal_areas
@pytest.mark.parametrize("fewer", ["lsad", "usdm_class"])
def test_part_of_the_primary_key_does_not_identify_rows(fewer: str) -> None:
    table, _ = judged(TRIBAL_AREAS[-1].name, TRIBAL_AREAS[-1].read_bytes())
    names = [name for name in DATASET.table.primary_key if name != fewer]
    assert table.select(names).group_by(names).aggregate([]).num_rows < table.num_rows


@need_tribal_areas
def test_a_share_that_is_a_little_more_than_the_whole_stays_as_it_is() -> None:
    shares = [max(judged(path.name, path.read_bytes())[0]["class_area_percent"].to_pylist()) for path in TRIBAL_AREAS]
    assert all(100 < share < 100.01 for share in shares)


@need_tribal_areas
def test_a_file_under_another_day_is_refused_by_the_gate() -> None:
    _, verdict = judged("USDM_2025-07-01.parquet", TRIBAL_AREAS[-1].read_bytes())
    assert [finding.rule for finding in verdict.findings] == ["time-in-window"]


def test_an_object_is_of_the_day_its_map_is_valid_for() -> None:
    folded = event(object_key="drought/tribal-areas/2025/06/24/USDM_2025-06-24.parquet")
    assert folded.key == "drought-tribal-areas:united_states:none:2025-06-24:v1-0-0"
    assert folded.window_start == datetime(2025, 6, 24, tzinfo=UTC)
    assert folded.window_end == folded.window_start + timedelta(days=1)


def test_folders_and_name_must_agree_on_the_day() -> None:
    with pytest.raises(LocationUndeclared):
        event(object_key="drought/tribal-areas/2025/06/24/USDM_2025-06-17.parquet")


def test_there_is_no_place_in_it() -> None:
    assert DATASET.table.place_columns == []
    assert bounding_box(declared_schema(DATASET.table).empty_table(), DATASET.table) is None


def test_its_policy_names_the_nation_as_authority() -> None:
    policy = load_policy(shipped_path("resources"), DATASET.policy)
    refuse_if_mismatched(policy, DATASET)
    assert policy.is_open
    assert DATASET.sovereignty is not None
    assert {"care:authority-to-control", "bc:provenance", "tk:attribution"} <= set(policy.labels)
    assert (shipped_path("resources") / "authorities" / f"{policy.authority}.yaml").is_file()
