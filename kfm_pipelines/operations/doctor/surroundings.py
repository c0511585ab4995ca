"""Declarations, database and store."""

from collections.abc import Iterator
from datetime import UTC, datetime

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.operations.doctor.finding import FIX, Finding
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.database import is_current

LARGEST_CLOCK_SKEW_SECONDS = 5


def declarations(services: Services) -> Iterator[Finding]:
    yield Finding("declarations", ok=True, found=", ".join(services.datasets) or "no dataset is declared")


def postgres(services: Services) -> Iterator[Finding]:
    [row] = services.database.fetch("SELECT clock_timestamp() AS now, current_setting('server_version') AS version")
    yield Finding("Postgres", ok=True, found=f"answers, version {row['version']}")
    skew = abs((datetime.now(UTC) - row["now"]).total_seconds())
    yield Finding(
        "clock",
        ok=skew <= LARGEST_CLOCK_SKEW_SECONDS,
        found=f"{skew:.1f} s apart from the database's",
        remedy="synchronise this machine's clock (leases go by the database's, logs by this one)",
    )
    current = is_current(services.database)
    yield Finding("schema", ok=current, found="up to date" if current else "missing or old", remedy=FIX)


def store(services: Services) -> Iterator[Finding]:
    path = "work/doctor/probe"
    services.store.write(path, b"probe")
    services.store.remove("work/doctor")
    yield Finding("store", ok=True, found=f"{services.store.url} can be written")


def switches(services: Services) -> Iterator[Finding]:
    try:
        if not is_current(services.database):
            return  # the schema's own finding says so
    except ServiceUnavailable:
        return  # and so does that of the database
    for killed, keys in kill_switch.waiting(services.database):
        found = f"killed since {killed.at:%Y-%m-%d %H:%M:%SZ} by {killed.actor}: {killed.reason}; {keys} keys wait"
        yield Finding(f"kill switch of {killed.dataset}", ok=True, found=found)
