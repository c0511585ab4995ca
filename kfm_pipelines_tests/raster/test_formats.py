"""Messages of GRIB2 and blocks of GeoTIFF are complete, and steps are chosen as declared."""

import numpy as np
import pytest

from kfm_pipelines.declarations.rasters import Band
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.raster import formats
from kfm_pipelines.raster.formats import geotiff_bands, refuse_cut_geotiff, refuse_cut_grib, step_of
from kfm_pipelines.raster.netcdf import valid_range
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, geotiff


def message(content: bytes = b"content", edition: int = 2) -> bytes:
    length = 16 + len(content) + 4
    return b"GRIB\x00\x00\x00" + bytes([edition]) + length.to_bytes(8) + content + b"7777"


def test_every_message_of_a_file_is_complete() -> None:
    refuse_cut_grib(b"a header of the WMO" + message() + message(b"GRIB within the data"), "one")
    for cut in (message() + message()[:-1], message()[:20]):
        with pytest.raises(InputUnreadable, match=r"not readable as GRIB2: message \d is cut or damaged"):
            refuse_cut_grib(cut, "one")
    with pytest.raises(InputUnreadable, match="it has no message"):
        refuse_cut_grib(b"<html>", "one")
    with pytest.raises(InputUnreadable, match="a message has another edition"):
        refuse_cut_grib(message(edition=1), "one")


def test_one_of_several_steps_has_to_be_declared() -> None:
    temperature = RAIN | {"source": "TMP"}
    assert step_of(Band.model_validate(temperature), [7], "one") == 7
    assert step_of(Band.model_validate(temperature | {"step": 2}), [7, 9], "one") == 9
    with pytest.raises(InputUnreadable, match=r"one has 2 steps of 'TMP'; declare bands\.step of rain"):
        step_of(Band.model_validate(temperature), [7, 9], "one")
    with pytest.raises(InputUnreadable, match="one has no step 3 of 'TMP', only 2"):
        step_of(Band.model_validate(temperature | {"step": 3}), [7, 9], "one")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"valid_range": "{-10,300}"}, (-10.0, 300.0)),
        ({"valid_min": "0"}, (0.0, float("inf"))),
        ({"valid_max": "1e3"}, (float("-inf"), 1000.0)),
        ({"valid_min": "nothing"}, None),
        ({}, None),
    ],
)
def test_the_valid_values_of_cf(attributes: dict[str, str], expected: tuple[float, float] | None) -> None:
    assert valid_range(attributes) == expected


@pytest.mark.parametrize(("interleave", "count"), [("pixel", 48), ("band", 96)])
def test_blocks_of_a_geotiff_are_looked_for_once_and_only_so_many(
    monkeypatch: pytest.MonkeyPatch, interleave: str, count: int
) -> None:
    """Two bands that are stored pixel by pixel have their blocks in common."""
    values = np.random.default_rng(1).random((2, 48, 5), np.float32)
    data = geotiff(values, blockysize=1, interleave=interleave)
    bands = [Band(name=f"rain_{number}", source=number, unit="mm", description="Rain") for number in (1, 2)]
    with geotiff_bands(data, "one", bands) as sources:
        monkeypatch.setattr(formats, "MAX_BLOCKS", count)
        refuse_cut_geotiff(sources, len(data), "one")
        with pytest.raises(InputUnreadable, match="is cut; a block lies beyond its end"):
            refuse_cut_geotiff(sources, len(data) - 1, "one")
        monkeypatch.setattr(formats, "MAX_BLOCKS", count - 1)
        with pytest.raises(InputUnreadable, match=f"has {count} blocks; at most {count - 1} are read"):
            refuse_cut_geotiff(sources, len(data), "one")
