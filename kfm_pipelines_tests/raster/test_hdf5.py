"""A NetCDF file that takes data from other files of the machine is refused."""

from pathlib import Path

import pytest
import rasterio
from rasterio.io import MemoryFile

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster.hdf5 import refuse_other_files
from kfm_pipelines_tests.fixtures.rasters.hdf5_files import Kind, hdf5_file, need_library
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data


@need_library
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("kind", ["external", "virtual", "link"])
def test_a_file_that_names_another_is_refused(tmp_path: Path, kind: Kind, newest: bool) -> None:
    data = hdf5_file(tmp_path / "one.h5", kind, tmp_path / "other.h5", newest=newest)
    with pytest.raises(InputUnreadable, match=r"^one takes data from other files, which are not read"):
        refuse_other_files(data, "one")


@need_library
def test_gdal_itself_would_read_the_other_file(tmp_path: Path) -> None:
    """Otherwise there would be nothing to refuse."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret of this machine".ljust(100, b"."))
    data = hdf5_file(tmp_path / "one.h5", "external", secret, newest=False)
    with MemoryFile(data) as file, rasterio.open(f'netcdf:"{file.name}":d', driver="netCDF") as dataset:
        assert b"a secret o" in dataset.read(1).tobytes()


@need_library
@pytest.mark.parametrize("newest", [False, True])
def test_other_files_are_taken(tmp_path: Path, newest: bool) -> None:
    refuse_other_files(hdf5_file(tmp_path / "one.h5", "plain", tmp_path, newest=newest), "one")
    refuse_other_files(b"CDF\x01 of the classic form", "one")


@needs_data
def test_a_real_file_is_taken() -> None:
    refuse_other_files((DATA / "netcdf" / "GFS_test.nc").read_bytes(), "one")
