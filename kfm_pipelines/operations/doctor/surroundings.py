"""Declarations, database and store."""

from collections.abc import Iterator
from datetime import UTC, datetime

from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.database import is_current

MAX_CLOCK_SKEW_SECONDS = 5


def check_declarations(services: Services) -> Iterator[DoctorFinding]:
    yield DoctorFinding("declarations", ok=True, found=", ".join(services.datasets) or "no dataset is declared")


def check_postgres(services: Services) -> Iterator[DoctorFinding]:
    [row] = services.database.fetch("SELECT clock_timestamp() AS now, current_setting('server_version') AS version")
    yield DoctorFinding("Postgres", ok=True, found=f"answers, version {row['version']}")
    skew = abs((datetime.now(UTC) - row["now"]).total_seconds())
    yield DoctorFinding(
        "clock",
        ok=skew <= MAX_CLOCK_SKEW_SECONDS,
        found=f"{skew:.1f} s apart from the database's",
        remedy="synchronise this machine's clock (leases go by the database's, logs by this one)",
    )
    current = is_current(services.database)
    yield DoctorFinding("schema", ok=current, found="up to date" if current else "missing or old", remedy=FIX_REMEDY)


def check_store(services: Services) -> Iterator[DoctorFinding]:
    path = "work/doctor/probe"
    services.store.write(path, b"probe")
    services.store.remove("work/doctor")
    yield DoctorFinding("store", ok=True, found=f"{services.store.url} can be written")


def check_kill_switches(services: Services) -> Iterator[DoctorFinding]:
    try:
        if not is_current(services.database):
            return  # the schema's own finding says so
    except ServiceUnavailable:
        return  # and so does that of the database
    for killed, keys in kill_switch.killed_with_due_keys(services.database):
        found = f"killed since {killed.at:%Y-%m-%d %H:%M:%SZ} by {killed.actor}: {killed.reason}; {keys} keys wait"
        yield DoctorFinding(f"kill switch of {killed.dataset}", ok=True, found=found)
