"""Set-up: bring the database's schema up to date and create the buckets, topics and queues that are missing."""

from kfm_pipelines.messaging.provision import provision
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state.database import is_current, migrate


def set_up(workshop: Workshop, *, cloud: bool) -> list[str]:
    """Do what is needed and say what was done. `cloud` is for emulators, and for accounts whose owner asks for it."""
    done: list[str] = []
    if not is_current(workshop.database):
        migrate(workshop.settings.postgres_url)
        done.append("database schema")
    return done + (provision(workshop.settings, workshop.datasets) if cloud else [])
