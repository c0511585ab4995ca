"""Which libraries the daemon's runs begin with."""

import os
import subprocess
import sys

from kfm_pipelines.preload_libraries import libraries_of
from kfm_pipelines_tests.fixtures.events.notices import declared

CHECK = "import kfm_pipelines.preload_libraries, sys; print({'rasterio', 'great_expectations'} & sys.modules.keys())"


def test_a_library_is_loaded_where_a_dataset_needs_it() -> None:
    datasets = declared()
    assert libraries_of([datasets["heritage/sites"]]) == []
    assert "pyiceberg.catalog.sql" in libraries_of([datasets["usgs/streamflow"]])
    assert libraries_of([datasets["drought/tribal-areas"]]) == ["great_expectations"]
    assert libraries_of([datasets["usda/soils"], datasets["land/parcels"]]) == ["pyogrio.raw"]
    assert "metpy.io" in libraries_of([datasets["noaa/nexrad-level3"]])


def test_declarations_that_cannot_be_read_end_nothing() -> None:
    environment = {**os.environ, "KFM_POSTGRES_URL": ""}
    done = subprocess.run([sys.executable, "-c", CHECK], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
    assert "the definitions or their libraries could not be loaded" in done.stderr
