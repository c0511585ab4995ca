"""Loads Great Expectations suites from the resources of this site."""

from kfm_pipelines.declarations import Table
from kfm_pipelines.gates.expectations import Suite, load_suite, suite_digest
from kfm_pipelines.services import Services


def suite_of(services: Services, name: str, table: Table) -> Suite:
    """Returns a suite, checked against its table; loads it again when the file has changed."""
    resources = services.settings.resources
    version = (suite_digest(resources, name), *(column.name for column in table.columns))
    return services.load_once(("suite", name, *version), lambda: load_suite(resources, name, table))
