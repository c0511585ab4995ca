"""All checks in order; a part that cannot be asked is one wrong finding, and the others are still looked at."""

from collections.abc import Callable, Iterator
from functools import partial

from kfm_pipelines.aws.topology import required_topology
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.doctor.buckets import bucket_findings, store_findings
from kfm_pipelines.operations.doctor.care import care_checks
from kfm_pipelines.operations.doctor.finding import DoctorFinding
from kfm_pipelines.operations.doctor.queues import queue_findings
from kfm_pipelines.operations.doctor.surroundings import (
    check_declarations,
    check_kill_switches,
    check_postgres,
    check_store,
)
from kfm_pipelines.operations.doctor.topics import subscription_findings, topic_findings
from kfm_pipelines.operations.doctor.trust import check_signing_key, check_software
from kfm_pipelines.services import Services

DoctorCheck = Callable[[], Iterator[DoctorFinding]]


def diagnose(services: Services) -> list[DoctorFinding]:
    return [finding for check, look in _checks(services) for finding in _run_check(check, look)]


def _check_topology(services: Services) -> Iterator[DoctorFinding]:
    """What is wanted follows from the declarations; where those are wrong, nothing can be said about it."""
    for check, look in _topology_checks(services):
        yield from _run_check(check, look)


def _check_care(services: Services) -> Iterator[DoctorFinding]:
    for check, look in care_checks(services):
        yield from _run_check(check, look)


def _checks(services: Services) -> Iterator[tuple[str, DoctorCheck]]:
    yield "declarations", partial(check_declarations, services)
    yield "Postgres", partial(check_postgres, services)
    yield "kill switch", partial(check_kill_switches, services)
    yield "care", partial(_check_care, services)
    yield "signing key", partial(check_signing_key, services)
    yield "list of software", partial(check_software, services)
    yield "store", partial(check_store, services)
    yield "store bucket", partial(store_findings, services)
    yield "wiring", partial(_check_topology, services)


def _topology_checks(services: Services) -> Iterator[tuple[str, DoctorCheck]]:
    wanted = required_topology(services.settings, services.datasets)
    for bucket in sorted({dataset.input.bucket for dataset in services.datasets.values()}):
        yield f"bucket {bucket}", partial(bucket_findings, services, bucket)
    for topic in wanted.topics:
        yield f"topic {topic.name}", partial(topic_findings, services, topic)
    for one in wanted.subscriptions:
        label = f"subscription of {one.queue} to {one.topic}"
        yield label, partial(subscription_findings, services, one)
    for queue in wanted.queues:
        if queue.dead_letter_queue is not None:
            yield f"queue {queue.name}", partial(queue_findings, queue)


def _run_check(check: str, function: DoctorCheck) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    try:
        findings.extend(function())
    except KfmError as error:
        findings.append(
            DoctorFinding(check, ok=False, found=str(error), remedy="mend this, then run `kfm doctor` again")
        )
    return findings
