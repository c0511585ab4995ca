"""Diagnosis: every assumption the pipeline makes about its surroundings, checked one by one."""

from kfm_pipelines.operations.doctor.diagnose import diagnose
from kfm_pipelines.operations.doctor.finding import DoctorFinding

__all__ = ["DoctorFinding", "diagnose"]
