"""Checks every assumption the pipeline makes about its environment."""

from kfm_pipelines.operations.doctor.diagnose import diagnose
from kfm_pipelines.operations.doctor.finding import DoctorFinding

__all__ = ["DoctorFinding", "diagnose"]
