"""Opens the services for a command: those of the environment, or the embedded stack."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kfm_pipelines.local.dagster import dagster_environment
from kfm_pipelines.local.keys import care_environment
from kfm_pipelines.local.stack import open_stack, running_services
from kfm_pipelines.services import Services, set_up
from kfm_pipelines.settings import home_directory, load_settings
from kfm_pipelines.telemetry.logs.configure import configure_logs


@contextmanager
def open_services(*, prepared: bool = True) -> Iterator[Services]:
    """Opens the services. `prepared` migrates the database and, on an emulator, creates missing resources."""
    home = home_directory(os.environ)
    embedded = not os.environ.get("KFM_POSTGRES_URL")
    if embedded:
        # The embedded stack has its own Dagster instance; another project's must not get our runs.
        os.environ.pop("DAGSTER_HOME", None)
    with open_stack(home) as stack:
        os.environ.update(stack.environment)
        os.environ.update(dagster_environment(home, os.environ))
        if embedded:
            os.environ.update(care_environment(home, os.environ))
        settings = load_settings()
        configure_logs(settings)
        services = Services(settings)
        try:
            if prepared:
                set_up(services, cloud=bool(os.environ.get("AWS_ENDPOINT_URL")))
            yield services
        finally:
            services.close()


def use_running_stack() -> None:
    """Lets a command that only reads the store find it in the stack that `kfm up` runs."""
    os.environ.update(running_services(home_directory(os.environ)))
