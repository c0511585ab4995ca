"""Reading a suite: mistakes are refused with one sentence, and Great Expectations is not imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations import Suite, load_suite
from kfm_pipelines.settings import shipped_path
from kfm_pipelines_tests.fixtures.tables import DATASET

BETWEEN = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "discharge_cfs", "min_value": 0, "max_value": 9.5},
}
ROWS = {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 5}}

LOAD = """
import sys
from kfm_pipelines.declarations.dataset import load_datasets
from kfm_pipelines.gates import expectations
from kfm_pipelines.settings import shipped_path

found = False
for dataset in load_datasets(shipped_path("resources")).values():
    suites = expectations.suites_of(shipped_path("resources"), dataset, dataset.table)
    found = found or bool(suites)
assert found
print(sorted({"great_expectations", "pandas", "pyarrow", "numpy", "shapely"} & set(sys.modules)))
"""


def write(folder: Path, document: Any, name: str = "flow") -> Path:
    (folder / "expectations").mkdir(exist_ok=True)
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "expectations" / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def changed(**changes: Any) -> dict[str, Any]:
    return {"name": "flow", "expectations": [BETWEEN | changes]}


def with_arguments(**arguments: Any) -> dict[str, Any]:
    return changed(kwargs=BETWEEN["kwargs"] | arguments)  # type: ignore[operator]


def with_ratio(name: str, *parts: str) -> dict[str, Any]:
    return {"name": "flow", "meta": {"ratios": {name: list(parts)}}, "expectations": [BETWEEN]}


def test_a_suite_is_read_as_GX_writes_it(tmp_path: Path) -> None:  # noqa: N802 - that is how it is spelt
    document = {
        "name": "flow",
        "meta": {"ratios": {"flow_by_height": ["discharge_cfs", "gage_height_ft"]}},
        "expectations": [
            BETWEEN | {"severity": "warning", "meta": {"rule": "not-much", "why": "Because"}},
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "flow_by_height"}},
            ROWS | {"severity": "info"},
        ],
    }
    suite = load_suite(write(tmp_path, document), "flow", DATASET.table)
    assert [(one.rule, one.finding_severity.value) for one in suite.expectations] == [
        ("gx:not-much", "warn"),
        ("gx:expect_column_values_to_not_be_null", "error"),
        ("gx:expect_table_row_count_to_be_between", "info"),
    ]
    assert [suite.source_columns(one) for one in suite.expectations] == [
        {"discharge_cfs"},
        {"discharge_cfs", "gage_height_ft"},
        set(),
    ]
    assert str(suite.expectations[0]) == "values_to_be_between min_value=0 max_value=9.5"


WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not JSON: "),
    "too deep": ("[" * 100_000, "is not JSON: "),
    "no object": ([], "declaration: Input should be a valid dictionary"),
    "another name": (changed() | {"name": "other"}, "name: must be 'flow' like its file, not 'other'"),
    "nothing expected": ({"name": "flow", "expectations": []}, "expectations: List should have at least 1 item"),
    "no expectations": ({"name": "flow"}, "expectations: Field required"),
    "an unknown field": (changed() | {"colour": "red"}, "colour: Extra inputs are not permitted"),
    "an unknown field of one": (changed(colour="red"), "expectations.0.colour: Extra inputs are not permitted"),
    "an unknown severity": (changed(severity="fatal"), "expectations.0.severity: Input should be 'critical', "),
    "twice the same": (
        {"name": "flow", "expectations": [BETWEEN, BETWEEN]},
        "'expect_column_values_to_be_between' is there twice; give each expectation a meta.rule of its own",
    ),
    "an unknown type": (
        changed(type="expect_good_data"),
        "expect_good_data: there is no expectation 'expect_good_data' for tables here",
    ),
    "SQL": (
        changed(type="unexpected_rows_expectation", kwargs={"unexpected_rows_query": "select 1"}),
        "unexpected_rows_expectation: there is no expectation 'unexpected_rows_expectation' for tables here",
    ),
    "task of the schema gate": (
        changed(type="expect_column_to_exist", kwargs={"column": "discharge_cfs"}),
        "expect_column_to_exist: expect_column_to_exist is the task of the schema gate; declare the columns instead",
    ),
    "an unknown column": (
        with_arguments(column="flow"),
        "expect_column_values_to_be_between: 'flow' is not one of the columns site_no, ",
    ),
    "an unknown column in a list": (
        changed(type="expect_compound_columns_to_be_unique", kwargs={"column_list": ["site_no", "when"]}),
        "expect_compound_columns_to_be_unique: 'when' is not one of the columns",
    ),
    "an unknown argument": (
        with_arguments(minimum=0),
        "expect_column_values_to_be_between: kwargs: 'minimum' is not one of column, max_value, min_value, mostly, ",
    ),
    "values in the result": (with_arguments(result_format="COMPLETE"), "kwargs: 'result_format' is not one of column"),
    "code for pandas": (with_arguments(row_condition="__import__('os')"), "kwargs: 'row_condition' is not one of"),
    "a parameter": (
        with_arguments(min_value={"$PARAMETER": "x"}),
        "kwargs: 'min_value' must be a value; there are no parameters",
    ),
    "an argument of another type": (with_arguments(mostly="most"), "kwargs.mostly: 'most' is not valid"),
    "an argument too few": (changed(kwargs={}), "kwargs: 'column' is a required property"),
    "a name with a space": (changed(meta={"rule": "two words"}), "expectations.0.meta.rule: String should match"),
    "a ratio like a column": (
        with_ratio("discharge_cfs", "discharge_cfs", "gage_height_ft"),
        "meta.ratios.discharge_cfs: is a column of the table; give the ratio another name",
    ),
    "a ratio of words": (
        with_ratio("r", "discharge_cfs", "qualifier"),
        "meta.ratios.r: 'qualifier' is not one of the columns with numbers",
    ),
    "a ratio of one": (with_ratio("r", "discharge_cfs"), "meta.ratios.r: List should have at least 2 items"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_refused_naming_file_and_expectation(tmp_path: Path, case: str) -> None:
    document, expected = WRONG[case]
    with pytest.raises(DeclarationInvalid) as refused:
        load_suite(write(tmp_path, document), "flow", DATASET.table)
    message = str(refused.value)
    assert message.startswith("flow.json: ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_missing_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationInvalid, match=r"^flow\.json: cannot be read: No such file"):
        load_suite(tmp_path, "flow", DATASET.table)


def test_reading_the_shipped_suites_imports_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr[-2000:]


@pytest.mark.parametrize(
    "path", sorted((shipped_path("resources") / "expectations").glob("*.json")), ids=lambda p: p.stem
)
def test_every_shipped_expectation_has_a_name_and_a_reason(path: Path) -> None:
    suite = Suite.model_validate_json(path.read_text())
    assert all(one.meta.rule and one.meta.why for one in suite.expectations)
