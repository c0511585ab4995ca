"""The services as a Dagster resource. Settings are read when a run or tick starts, not when definitions load."""

from functools import cache

import dagster as dg

from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_settings
from kfm_pipelines.state.liveness import is_recorded, record_run
from kfm_pipelines.telemetry.logs.configure import configure_logs


class ServicesResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Opens the services that the environment configures."""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Records which process executes the run, before its first step. A worker has done so already."""
        if context.run is not None:
            services = self.open()
            if not is_recorded(services.database, context.run.run_id):
                record_run(services.database, context.run.run_id, services.process_lock.number)

    def open(self) -> Services:
        return services_of_process(load_settings())


@cache
def services_of_process(settings: Settings) -> Services:
    """Opens the services once per process, because each tick would otherwise open new connections."""
    configure_logs(settings)
    return Services(settings)
