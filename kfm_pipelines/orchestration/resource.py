"""The services as a Dagster resource. Settings are read when a run or tick starts, not when definitions load."""

from functools import cache

import dagster as dg

from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs


class ServicesResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Opens the services that the environment configures."""

    def open(self) -> Services:
        return services_of_process(load_settings())


@cache
def services_of_process(settings: Settings) -> Services:
    """Opens the services once per process, because each tick would otherwise open new connections."""
    configure_logs(settings)
    return Services(settings)
