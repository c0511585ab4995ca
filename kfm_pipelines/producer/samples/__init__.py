"""Invented sample objects, the same bytes everywhere. No real readings, and no real sensitive place."""

from collections.abc import Mapping

from kfm_pipelines.producer.samples.heritage import heritage_object
from kfm_pipelines.producer.samples.landsat import landsat_days, landsat_message, landsat_object, landsat_scene
from kfm_pipelines.producer.samples.mrms import mrms_object
from kfm_pipelines.producer.samples.nexrad import nexrad_object
from kfm_pipelines.producer.samples.sample import Sample, hours, months, tuesdays, years
from kfm_pipelines.producer.samples.sentinel2 import (
    sentinel2_days,
    sentinel2_message,
    sentinel2_object,
    sentinel2_scene,
)
from kfm_pipelines.producer.samples.squares import parcels_object, soils_object
from kfm_pipelines.producer.samples.streamflow import streamflow_object
from kfm_pipelines.producer.samples.tribal_areas import tribal_areas_object

SAMPLES: Mapping[str, Sample] = {
    "drought/tribal-areas": Sample(tribal_areas_object, tuesdays),
    "esa/sentinel-2-scenes": Sample(sentinel2_object, sentinel2_days, sentinel2_scene, sentinel2_message),
    "heritage/sites": Sample(heritage_object, months),
    "land/parcels": Sample(parcels_object, months),
    "noaa/mrms-reflectivity": Sample(mrms_object, hours),
    "noaa/nexrad-level3": Sample(nexrad_object, hours),
    "usda/soils": Sample(soils_object, years),
    "usgs/landsat-ndvi": Sample(landsat_object, landsat_days, landsat_scene, landsat_message),
    "usgs/streamflow": Sample(streamflow_object, hours),
}

__all__ = ["SAMPLES", "Sample", "heritage_object", "streamflow_object", "tribal_areas_object"]
