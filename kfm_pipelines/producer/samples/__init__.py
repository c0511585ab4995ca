"""Sample objects for the embedded stack: plausible, made up, and the same bytes on every machine and every run.

Belongs here: one module per sample dataset, and SAMPLES to find it by the dataset's name. Does not: real readings, and
above all no real sensitive place.
"""

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
