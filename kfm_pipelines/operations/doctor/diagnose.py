"""Runs all checks in order: database, store, kill switches, signing key and software here, the others beside."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from kfm_pipelines.catalog.trust.environment import listed_versions, sbom, unlisted_software
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.doctor.care import care_checks
from kfm_pipelines.operations.doctor.finding import FIX_REMEDY, DoctorCheck, DoctorFinding, run_checks
from kfm_pipelines.operations.doctor.topology import store_bucket_findings, topology_checks
from kfm_pipelines.services import Services
from kfm_pipelines.settings import default_signing_key
from kfm_pipelines.state import kill_switch
from kfm_pipelines.state.database import is_current

MAX_CLOCK_SKEW_SECONDS = 5


def diagnose(services: Services) -> list[DoctorFinding]:
    return list(run_checks(_checks(services)))


def _checks(services: Services) -> Iterator[DoctorCheck]:
    yield "declarations", partial(check_declarations, services)
    yield "Postgres", partial(check_postgres, services)
    has_schema = has_current_schema(services)
    if has_schema:
        yield "kill switch", partial(check_kill_switches, services)
    yield "care", lambda: run_checks(care_checks(services, has_schema=has_schema))
    yield "signing key", partial(check_signing_key, services)
    yield "list of software", check_software
    yield "store", partial(check_store, services)
    yield "store bucket", partial(store_bucket_findings, services)
    # The topology follows from the declarations; when those are invalid, this is one finding.
    yield "wiring", lambda: run_checks(topology_checks(services))


def check_declarations(services: Services) -> Iterator[DoctorFinding]:
    yield DoctorFinding("declarations", ok=True, found=", ".join(services.datasets) or "no dataset is declared")


def check_postgres(services: Services) -> Iterator[DoctorFinding]:
    [row] = services.database.fetch("SELECT clock_timestamp() AS now, current_setting('server_version') AS version")
    yield DoctorFinding("Postgres", ok=True, found=f"reachable, version {row['version']}")
    skew = abs((datetime.now(UTC) - row["now"]).total_seconds())
    remedy = "synchronise this machine's clock: leases use the database's clock, logs use this one"
    found = f"{skew:.1f} s apart from the database's"
    yield DoctorFinding("clock", ok=skew <= MAX_CLOCK_SKEW_SECONDS, found=found, remedy=remedy)
    current = is_current(services.database)
    yield DoctorFinding("schema", ok=current, found="up to date" if current else "missing or old", remedy=FIX_REMEDY)


def has_current_schema(services: Services) -> bool:
    """Without a database or schema, which `check_postgres` reports, other checks have nothing to compare with."""
    try:
        return is_current(services.database)
    except KfmError:
        return False


def check_store(services: Services) -> Iterator[DoctorFinding]:
    services.store.create("work/doctor/probe", b"probe")
    services.store.replace("work/doctor/probe", "work/doctor/copy")
    services.store.remove("work/doctor")
    yield DoctorFinding("store", ok=True, found=f"{services.store.url} is writable")


def check_kill_switches(services: Services) -> Iterator[DoctorFinding]:
    for killed, keys in kill_switch.killed_with_due_keys(services.database):
        found = f"killed since {killed.at:%Y-%m-%d %H:%M:%SZ} by {killed.actor}: {killed.reason}; {keys} keys wait"
        yield DoctorFinding(f"kill switch of {killed.dataset}", ok=True, found=found)


def check_signing_key(services: Services) -> Iterator[DoctorFinding]:
    """Does not create a missing key; the first release does."""
    settings = services.settings
    own = settings.signing_key == default_signing_key(settings.home)
    if own and not settings.signing_key.exists():
        found = f"none yet; the first release creates {settings.signing_key}"
    else:
        found = f"{settings.signing_key}, key {signer_of(services).public.key_id[:16]}"
    ok = not (own and settings.store_url.startswith("s3://"))
    remedy = "every machine would sign with its own key: set the same KFM_SIGNING_KEY on all of them"
    yield DoctorFinding("signing key", ok=ok, found=found, remedy=remedy)


def check_software() -> Iterator[DoctorFinding]:
    problems = unlisted_software()
    found = problems[0] if problems else f"{len(listed_versions(sbom()))} distributions cover all imported modules"
    remedy = "install the code as a distribution, so that releases can name the software that made them"
    yield DoctorFinding("list of software", ok=not problems, found=found, remedy=remedy)
