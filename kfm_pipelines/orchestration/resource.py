"""The services as a Dagster resource: settings are read when a run or tick starts, not when definitions load."""

from functools import cache

import dagster as dg

from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs


class ServicesResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Database, store, queue and declarations, as the environment says."""

    def open(self) -> Services:
        return services_of_process(load_settings())


@cache
def services_of_process(settings: Settings) -> Services:
    """One for each process: ticks come every few seconds, and each would otherwise open connections of its own. What is
    logged from here on is in the log."""
    configure_logs(settings)
    return Services(settings)
