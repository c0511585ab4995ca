"""Runs all checks in order."""

from collections.abc import Iterator
from functools import partial

from kfm_pipelines.operations.doctor import environment
from kfm_pipelines.operations.doctor.care import care_checks
from kfm_pipelines.operations.doctor.finding import DoctorCheck, DoctorFinding, run_checks
from kfm_pipelines.operations.doctor.topology import store_bucket_findings, topology_checks
from kfm_pipelines.services import Services


def diagnose(services: Services) -> list[DoctorFinding]:
    return list(run_checks(_checks(services)))


def _checks(services: Services) -> Iterator[DoctorCheck]:
    yield "declarations", partial(environment.check_declarations, services)
    yield "Postgres", partial(environment.check_postgres, services)
    has_schema = environment.has_current_schema(services)
    if has_schema:
        yield "kill switch", partial(environment.check_kill_switches, services)
    yield "care", lambda: run_checks(care_checks(services, has_schema=has_schema))
    yield "signing key", partial(environment.check_signing_key, services)
    yield "list of software", environment.check_software
    yield "store", partial(environment.check_store, services)
    yield "store bucket", partial(store_bucket_findings, services)
    # The topology follows from the declarations; when those are invalid, this is one finding.
    yield "wiring", lambda: run_checks(topology_checks(services))
