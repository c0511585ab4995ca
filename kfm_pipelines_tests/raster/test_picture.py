"""A small picture in the colours of a palette, transparent where there is no value."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kfm_pipelines.declarations.rasters import Raster
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.raster.grid import Pixels
from kfm_pipelines.raster.picture import draw_picture
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, pixels


def draw(made: Pixels, **picture: Any) -> np.ndarray[Any, Any]:
    raster = Raster.model_validate({"bands": [RAIN], **({"picture": picture} if picture else {})})
    return np.asarray(Image.open(BytesIO(draw_picture(made, raster))))


def test_colours_go_from_least_to_largest_and_nodata_is_transparent() -> None:
    drawn = draw(pixels(np.array([[-5.0, 0.0, 10.0, 99.0, np.nan]])), min=0, max=10, palette="gray")
    assert drawn[0].tolist() == [[0, 0, 0, 255], [0, 0, 0, 255], [255] * 4, [255] * 4, [0, 0, 0, 0]]


def test_without_a_declared_picture_the_values_give_the_bounds() -> None:
    drawn = draw(pixels(np.array([[1.0, 2.0], [3.0, np.nan]])))
    assert drawn[0, 0].tolist() == [68, 1, 84, 255]  # the first colour of viridis
    assert drawn[1, 0].tolist() == [253, 231, 36, 255]  # and its last one
    assert draw(pixels(np.full((2, 2), np.nan)))[..., 3].max() == 0


@pytest.mark.parametrize(
    ("shape", "expected"), [((300, 1500), (102, 512)), ((5000, 3), (512, 1)), ((20, 30), (20, 30))]
)
def test_no_side_is_longer_than_512(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert draw(pixels(np.ones(shape)))[..., 0].shape == expected


def test_an_unknown_palette_is_a_mistake_of_the_declaration() -> None:
    with pytest.raises(DeclarationInvalid, match="'rainy' is not a palette of Matplotlib"):
        draw(pixels(), min=0, max=1, palette="rainy")
