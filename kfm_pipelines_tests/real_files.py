"""Files as their publishers write them: kept beside the checkout and not in it, so not on every machine."""

import os
from pathlib import Path

import pytest

import kfm_pipelines_tests

BESIDE = Path(kfm_pipelines_tests.__file__).parents[2] / "shared" / "data"
TRIBAL_AREAS = sorted((Path(os.environ.get("KFM_REAL_DATA") or BESIDE) / "usdm-aiannh").glob("*.parquet"))
need_tribal_areas = pytest.mark.skipif(
    not TRIBAL_AREAS, reason="the real files are not on this machine; set KFM_REAL_DATA"
)
