"""Sites whose dataset tries a candidate."""

from pathlib import Path
from typing import Any

from kfm_pipelines.datasets import Dataset
from kfm_pipelines_tests.declared import change
from kfm_pipelines_tests.site import Site

VERSION = "v1-1-0"
CANARY: dict[str, Any] = {
    "transform_version": VERSION,
    "fraction": 1.0,
    "keys": 2,
    "tolerance": {"columns": "additive"},
}


def declaration_path(site: Site) -> Path:
    return site.workshop.settings.resources / "datasets/usgs-streamflow.yaml"


def candidate_file(site: Site, version: str = VERSION) -> Path:
    return site.workshop.settings.resources / f"candidates/usgs-streamflow@{version}.yaml"


def try_candidate(site: Site, canary: dict[str, Any] | None = CANARY) -> Dataset:
    """The site's dataset names the shipped candidate from now on, or none."""
    change(declaration_path(site), canary=canary)
    return declared_now(site)


def declared_now(site: Site) -> Dataset:
    """As a process that starts now reads it."""
    site.workshop.__dict__.pop("datasets", None)
    return site.dataset
