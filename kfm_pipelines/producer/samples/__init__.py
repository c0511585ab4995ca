"""Invented sample objects, the same bytes everywhere. No real readings, and no real sensitive place."""

from collections.abc import Mapping

from kfm_pipelines.producer.samples.heritage import heritage_object
from kfm_pipelines.producer.samples.sample import Sample, hours, months, tuesdays
from kfm_pipelines.producer.samples.streamflow import streamflow_object
from kfm_pipelines.producer.samples.tribal_areas import tribal_areas_object

SAMPLES: Mapping[str, Sample] = {
    "drought/tribal-areas": Sample(tribal_areas_object, tuesdays),
    "heritage/sites": Sample(heritage_object, months),
    "usgs/streamflow": Sample(streamflow_object, hours),
}

__all__ = ["SAMPLES", "Sample", "heritage_object", "streamflow_object", "tribal_areas_object"]
