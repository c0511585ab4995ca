"""A GeoPackage is read if it is one, has one layer or a named one, and its layer is a table and nothing cleverer."""

import sqlite3
from collections.abc import Sequence

import pytest

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines_tests.fixtures.features import as_geopackage, features_of, layer, plots

DATASET = layer("geopackage")
GOOD = as_geopackage(plots())


def changed(*statements: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(GOOD)
    for function in ("ST_IsEmpty", "ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
        connection.create_function(function, 1, lambda _: 0)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection.serialize()


SECOND = (
    "CREATE TABLE more AS SELECT * FROM plots",
    "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES ('more', 'features', 'more', 4326)",
    "INSERT INTO gpkg_geometry_columns SELECT 'more', column_name, geometry_type_name, srs_id, z, m "
    "FROM gpkg_geometry_columns",
)
VIEW = ("ALTER TABLE plots RENAME TO hidden", "CREATE VIEW plots AS SELECT * FROM hidden")
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (SECOND, "has 2 layers; vector.layer must name one of them$"),
        (("DELETE FROM gpkg_contents",), "has features in no layer$"),
        (("DROP TABLE gpkg_contents",), "is not readable as a GeoPackage$"),
        (("DROP TABLE plots",), "has a layer that is not a plain table$"),
        (VIEW, "has a layer that is not a plain table$"),
        (("ALTER TABLE plots ADD COLUMN made AS (acres + 1)",), "has a layer that is not a plain table$"),
        (("DROP TABLE gpkg_extensions", f"CREATE VIEW gpkg_extensions AS {ENDLESS}"), "is not readable as"),
        (("DROP TABLE gpkg_contents", f"CREATE VIEW gpkg_contents AS {ENDLESS}"), "is not readable as"),
        (("UPDATE gpkg_contents SET srs_id = 0",), "states two different reference systems$"),
        (
            ("UPDATE gpkg_contents SET srs_id = -1", "UPDATE gpkg_geometry_columns SET srs_id = -1"),
            "does not state the reference system of its coordinates$",
        ),
        (("PRAGMA application_id = 0",), "is not readable as a GeoPackage$"),
        (("UPDATE plots SET geom = x'00'",), "is not readable as|: 4 features have"),
        (("UPDATE plots SET geom = NULL",), ": 4 features have no geometry$"),
    ],
)
def test_a_bad_file_is_one_sentence(statements: Sequence[str], sentence: str) -> None:
    with pytest.raises(InputUnreadable, match=rf"^s3://kfm-ingest/0 ?({sentence})"):
        features_of(DATASET, changed(*statements))


def test_a_named_layer_is_read_beside_others() -> None:
    named = layer("geopackage", vector={"layer": "plots"})
    assert features_of(named, changed(*SECOND)).equals(features_of(DATASET, GOOD))
    with pytest.raises(InputUnreadable, match=r"has no layer 'fields', which vector.layer names$"):
        features_of(layer("geopackage", vector={"layer": "fields"}), GOOD)


def test_other_views_and_a_write_ahead_log_do_no_harm() -> None:
    assert features_of(DATASET, changed(f"CREATE VIEW other AS {ENDLESS}")).num_rows == 4
    logged = GOOD[:18] + b"\x02\x02" + GOOD[20:]
    assert features_of(DATASET, logged).num_rows == 4


@pytest.mark.parametrize("length", [100, 5_000, len(GOOD) // 2, len(GOOD) - 4096])
def test_a_file_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(InputUnreadable, match=r"^s3://kfm-ingest/0 "):
        features_of(DATASET, GOOD[:length])


def test_limits_are_held() -> None:
    with pytest.raises(InputUnreadable, match=r"has 4 rows; input.limits.rows allows 3$"):
        features_of(layer("geopackage", input={"limits": {"rows": 3}}), GOOD)
    with pytest.raises(InputUnreadable, match=r"unpacks to .* bytes; input.limits.unpacked_bytes allows 100$"):
        features_of(layer("geopackage", input={"limits": {"unpacked_bytes": 100}}), GOOD)
