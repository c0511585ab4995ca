"""Diagnosis: every assumption the pipeline makes about its surroundings, checked one by one."""

from kfm_pipelines.operations.diagnosis.diagnose import diagnose
from kfm_pipelines.operations.diagnosis.finding import Finding

__all__ = ["Finding", "diagnose"]
