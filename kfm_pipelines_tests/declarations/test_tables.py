"""What a declaration may say about its Iceberg table."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.tables import IcebergTable
from kfm_pipelines.settings import shipped_path


def declared(**changes: Any) -> Dataset:
    text = (shipped_path("resources/datasets") / "usgs-streamflow.yaml").read_text()
    return Dataset.model_validate(yaml.safe_load(text) | changes)


def test_a_table_is_declared_by_a_word_or_a_section() -> None:
    assert declared(tables="iceberg").tables == IcebergTable()
    section = {"period": "day", "cells": 3, "history_days": 7}
    assert declared(tables=section).tables == IcebergTable(period="day", cells=3, history_days=7)
    assert declared(tables=None).tables is None


def test_a_table_does_not_change_the_bytes_of_a_key() -> None:
    assert declared(tables=None).digest == declared(tables="iceberg").digest


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tables": "delta"}, "Input should be 'iceberg'"),
        ({"tables": {"cells": 9}}, "less than or equal to 5"),
        ({"tables": {"bucket": 16}}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        declared(**changes)


def test_columns_cannot_have_the_names_of_ours() -> None:
    table = declared().table.model_dump(mode="json")
    table["columns"][0]["name"] = "kfm_key"
    table["primary_key"] = ["kfm_key" if name == "site_no" else name for name in table["primary_key"]]
    with pytest.raises(ValidationError, match="begin with kfm_ are ours: 'kfm_key'"):
        declared(tables="iceberg", table=table)


def test_cells_need_places() -> None:
    table = declared().table.model_dump(mode="json")
    places = ("latitude", "longitude", "geometry")
    table |= {f"{role}_column": None for role in places}
    table["columns"] = [one for one in table["columns"] if one["name"] not in places]
    with pytest.raises(ValidationError, match="no column holds one"):
        declared(tables={"cells": 3}, table=table)
